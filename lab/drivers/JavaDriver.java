// Kafka's own Java clients behind the contract's vocabulary: one JSON object a line in, one out.
// See testing/contract/vocabulary.py.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Collection;
import java.util.Collections;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.CreateTopicsOptions;
import org.apache.kafka.clients.admin.ListOffsetsResult;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

public class JavaDriver {
    private interface Op {
        Object run(JsonNode args) throws Exception;
    }

    private static final ObjectMapper JSON = new ObjectMapper();
    private final Map<String, Op> ops = new LinkedHashMap<>();
    private final String version;
    private String bootstrap;
    private JsonNode security;
    private Admin admin;

    private JavaDriver(String version) {
        this.version = version;
        ops.put("open", this::open);
        ops.put("produce", this::produce);
        ops.put("fetch", this::fetch);
        ops.put("consume", this::consume);
        ops.put("consume_by_coordinator", args -> consume(((ObjectNode) args).put("protocol", "consumer")));
        ops.put("send_offsets", this::sendOffsets);
        ops.put("committed", this::committed);
        ops.put("commit", this::commit);
        ops.put("offsets", this::offsets);
        ops.put("create_topic", this::createTopic);
        ops.put("delete_topic", args -> admin().deleteTopics(List.of(topic(args))).all().get());
        ops.put("list_topics", args -> new TreeSet<>(admin().listTopics().names().get()));
        ops.put("describe_topic", this::describeTopic);
        ops.put("create_partitions", args ->
            admin().createPartitions(Map.of(topic(args), NewPartitions.increaseTo(args.get("count").asInt()))).all().get());
        ops.put("describe_configs", this::describeConfigs);
        ops.put("alter_configs", this::alterConfigs);
        ops.put("delete_records", this::deleteRecords);
        ops.put("list_groups", args -> {
            TreeSet<String> names = new TreeSet<>();
            admin().listConsumerGroups().all().get().forEach(each -> names.add(each.groupId()));
            return names;
        });
        ops.put("describe_group", this::describeGroup);
        ops.put("delete_group", args -> admin().deleteConsumerGroups(List.of(group(args))).all().get());
        ops.put("delete_offsets", args ->
            admin().deleteConsumerGroupOffsets(group(args), Collections.singleton(partition(args))).all().get());
        ops.put("describe_cluster", this::describeCluster);
    }

    private static String topic(JsonNode args) {
        return args.get("topic").asText();
    }

    private static String group(JsonNode args) {
        return args.get("group").asText();
    }

    private static TopicPartition partition(JsonNode args) {
        return new TopicPartition(topic(args), args.get("partition").asInt());
    }

    private static boolean has(JsonNode node, String name) {
        return node.hasNonNull(name);
    }

    private static byte[] bytes(JsonNode node, String name) {
        return has(node, name) ? Base64.getDecoder().decode(node.get(name).asText()) : null;
    }

    private static String text(byte[] value) {
        return value == null ? null : Base64.getEncoder().encodeToString(value);
    }

    private Properties common() {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", bootstrap);
        properties.put("client.id", "contract-java");
        properties.put("default.api.timeout.ms", "20000");
        properties.put("request.timeout.ms", "10000");
        secure(properties);
        return properties;
    }

    private void secure(Properties properties) {
        if (!has(security, "security_protocol")) return;
        properties.put("security.protocol", security.get("security_protocol").asText());
        if (has(security, "ssl_cafile")) {
            String trusted = security.get("ssl_cafile").asText();
            boolean isText = trusted.contains("-----BEGIN");
            properties.put("ssl.truststore.type", "PEM");
            properties.put(isText ? "ssl.truststore.certificates" : "ssl.truststore.location", trusted);
        }
        if (!security.path("ssl_check_hostname").asBoolean(true)) {
            properties.put("ssl.endpoint.identification.algorithm", "");
        }
        if (!has(security, "sasl_mechanism")) return;
        String mechanism = security.get("sasl_mechanism").asText();
        String module = mechanism.equals("PLAIN") ? "plain.PlainLoginModule" : "scram.ScramLoginModule";
        properties.put("sasl.mechanism", mechanism);
        properties.put("sasl.jaas.config", "org.apache.kafka.common.security." + module + " required username="
            + quoted("sasl_plain_username") + " password=" + quoted("sasl_plain_password") + ";");
    }

    private String quoted(String name) {
        return '"' + security.get(name).asText().replace("\\", "\\\\").replace("\"", "\\\"") + '"';
    }

    private Admin admin() {
        if (admin == null) admin = Admin.create(common());
        return admin;
    }

    private Object open(JsonNode args) {
        bootstrap = args.get("bootstrap").asText();
        security = args.path("security");
        if (admin != null) admin.close(Duration.ZERO);
        admin = null;
        return Map.of("name", "java", "version", version, "ops", ops.keySet());
    }

    private Object produce(JsonNode args) throws Exception {
        Properties properties = common();
        properties.put("acks", args.path("acks").asText("all"));
        boolean transactional = has(args, "transactional_id");
        properties.put("enable.idempotence", Boolean.toString(args.path("idempotent").asBoolean() || transactional));
        properties.put("compression.type", args.path("compression").asText("none"));
        properties.put("max.block.ms", "10000");
        properties.put("linger.ms", "20");
        properties.put("delivery.timeout.ms", "10020");
        if (transactional) properties.put("transactional.id", args.get("transactional_id").asText());
        if (has(args, "max_request_size")) properties.put("max.request.size", args.get("max_request_size").asText());
        try (KafkaProducer<byte[], byte[]> producer =
                new KafkaProducer<>(properties, new ByteArraySerializer(), new ByteArraySerializer())) {
            if (transactional) {
                producer.initTransactions();
                producer.beginTransaction();
            }
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (JsonNode record : args.get("records")) sent.add(producer.send(recordOf(topic(args), record)));
            producer.flush();
            List<Object> outcomes = new ArrayList<>();
            for (Future<RecordMetadata> each : sent) outcomes.add(outcome(each));
            if (transactional && args.path("commit").asBoolean(true)) producer.commitTransaction();
            else if (transactional) producer.abortTransaction();
            return outcomes;
        }
    }

    private Object sendOffsets(JsonNode args) {
        Properties properties = common();
        properties.put("transactional.id", args.get("transactional_id").asText());
        try (KafkaProducer<byte[], byte[]> producer =
                new KafkaProducer<>(properties, new ByteArraySerializer(), new ByteArraySerializer())) {
            producer.initTransactions();
            producer.beginTransaction();
            TopicPartition first = new TopicPartition(topic(args), 0);
            OffsetAndMetadata offset = new OffsetAndMetadata(args.get("offset").asLong());
            producer.sendOffsetsToTransaction(Map.of(first, offset), new ConsumerGroupMetadata(group(args)));
            if (args.get("commit").asBoolean()) producer.commitTransaction();
            else producer.abortTransaction();
            return null;
        }
    }

    private static ProducerRecord<byte[], byte[]> recordOf(String topic, JsonNode record) {
        List<Header> headers = new ArrayList<>();
        for (JsonNode each : record.path("headers")) {
            byte[] value = each.get(1).isNull() ? null : Base64.getDecoder().decode(each.get(1).asText());
            headers.add(new RecordHeader(each.get(0).asText(), value));
        }
        Integer partition = has(record, "partition") ? record.get("partition").asInt() : null;
        Long timestamp = has(record, "timestamp_ms") ? record.get("timestamp_ms").asLong() : null;
        return new ProducerRecord<>(topic, partition, timestamp, bytes(record, "key"), bytes(record, "value"), headers);
    }

    private static Object outcome(Future<RecordMetadata> sent) throws Exception {
        try {
            RecordMetadata metadata = sent.get();
            return Map.of("partition", metadata.partition(), "offset", metadata.hasOffset() ? metadata.offset() : -1,
                "timestamp_ms", metadata.timestamp());
        } catch (ExecutionException error) {
            return Map.of("error", nameOf(error), "text", String.valueOf(error.getMessage()));
        }
    }

    private KafkaConsumer<byte[], byte[]> consumer(JsonNode args) {
        Properties properties = common();
        properties.put("isolation.level", args.path("isolation").asText("read_uncommitted"));
        properties.put("auto.offset.reset", "earliest");
        properties.put("enable.auto.commit", "false");
        properties.put("allow.auto.create.topics", "false");
        properties.put("fetch.max.wait.ms", "100");
        if (has(args, "group")) properties.put("group.id", group(args));
        if (has(args, "protocol")) properties.put("group.protocol", args.get("protocol").asText());
        if (has(args, "assignor")) properties.put("partition.assignment.strategy", args.get("assignor").asText());
        if (has(args, "instance_id")) properties.put("group.instance.id", args.get("instance_id").asText());
        return new KafkaConsumer<>(properties, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    private Object fetch(JsonNode args) {
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(args)) {
            consumer.assign(List.of(partition(args)));
            consumer.seek(partition(args), args.get("offset").asLong());
            return poll(consumer, args);
        }
    }

    private Object consume(JsonNode args) {
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(args)) {
            consumer.subscribe(List.of(topic(args)));
            List<Map<String, Object>> records = poll(consumer, args);
            Map<TopicPartition, OffsetAndMetadata> read = new HashMap<>();
            for (Map<String, Object> each : records) {
                read.put(new TopicPartition(topic(args), (int) each.get("partition")),
                    new OffsetAndMetadata((long) each.get("offset") + 1));
            }
            consumer.commitSync(read);
            return records;
        }
    }

    private static List<Map<String, Object>> poll(KafkaConsumer<byte[], byte[]> consumer, JsonNode args) {
        long until = System.currentTimeMillis() + args.get("timeout_ms").asLong();
        int count = args.get("count").asInt();
        List<Map<String, Object>> records = new ArrayList<>();
        while (records.size() < count && System.currentTimeMillis() < until) {
            for (ConsumerRecord<byte[], byte[]> each : consumer.poll(Duration.ofMillis(100))) {
                if (records.size() < count) records.add(recordOf(each));
            }
        }
        return records;
    }

    private static Map<String, Object> recordOf(ConsumerRecord<byte[], byte[]> record) {
        List<Object> headers = new ArrayList<>();
        for (Header each : record.headers()) {
            List<String> pair = new ArrayList<>();
            pair.add(each.key());
            pair.add(text(each.value()));
            headers.add(pair);
        }
        Map<String, Object> fields = new HashMap<>();
        fields.put("partition", record.partition());
        fields.put("offset", record.offset());
        fields.put("timestamp_ms", record.timestamp());
        fields.put("key", text(record.key()));
        fields.put("value", text(record.value()));
        fields.put("headers", headers);
        return fields;
    }

    private Object committed(JsonNode args) throws Exception {
        Map<Integer, Object> offsets = new TreeMap<>();
        admin().listConsumerGroupOffsets(group(args)).partitionsToOffsetAndMetadata().get().forEach((key, value) -> {
            if (key.topic().equals(topic(args)) && value != null) {
                offsets.put(key.partition(), List.of(value.offset(), value.metadata()));
            }
        });
        return offsets;
    }

    private Object commit(JsonNode args) throws Exception {
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        args.get("offsets").fields().forEachRemaining(each -> offsets.put(
            new TopicPartition(topic(args), Integer.parseInt(each.getKey())),
            new OffsetAndMetadata(each.getValue().get(0).asLong(), Optional.empty(), each.getValue().get(1).asText())));
        return admin().alterConsumerGroupOffsets(group(args), offsets).all().get();
    }

    private Object offsets(JsonNode args) throws Exception {
        JsonNode at = args.get("at");
        OffsetSpec spec = at.isNumber() ? OffsetSpec.forTimestamp(at.asLong())
            : at.asText().equals("latest") ? OffsetSpec.latest()
            : at.asText().equals("max_timestamp") ? OffsetSpec.maxTimestamp() : OffsetSpec.earliest();
        ListOffsetsResult.ListOffsetsResultInfo found =
            admin().listOffsets(Map.of(partition(args), spec)).partitionResult(partition(args)).get();
        return found.offset();
    }

    private Object createTopic(JsonNode args) throws Exception {
        Map<String, String> configs = new HashMap<>();
        args.path("configs").fields().forEachRemaining(each -> configs.put(each.getKey(), each.getValue().asText()));
        NewTopic topic = new NewTopic(topic(args), args.get("partitions").asInt(),
            (short) args.path("replication_factor").asInt(1)).configs(configs);
        CreateTopicsOptions options = new CreateTopicsOptions().validateOnly(args.path("validate_only").asBoolean());
        return admin().createTopics(List.of(topic), options).all().get();
    }

    private Object describeTopic(JsonNode args) throws Exception {
        List<Object> partitions = new ArrayList<>();
        admin().describeTopics(List.of(topic(args))).allTopicNames().get().get(topic(args)).partitions().forEach(each ->
            partitions.add(Map.of("partition", each.partition(), "leader", each.leader() == null ? -1 : each.leader().id(),
                "replicas", ids(each.replicas()), "isr", ids(each.isr()))));
        return partitions;
    }

    private static List<Integer> ids(Collection<Node> nodes) {
        return nodes.stream().map(Node::id).toList();
    }

    private static ConfigResource resource(JsonNode args) {
        return new ConfigResource(ConfigResource.Type.valueOf(args.get("kind").asText().toUpperCase()),
            args.get("name").asText());
    }

    private Object describeConfigs(JsonNode args) throws Exception {
        Map<String, String> values = new TreeMap<>();
        for (ConfigEntry each : admin().describeConfigs(List.of(resource(args))).all().get().get(resource(args)).entries()) {
            values.put(each.name(), each.value());
        }
        return values;
    }

    private Object alterConfigs(JsonNode args) throws Exception {
        List<AlterConfigOp> changes = new ArrayList<>();
        args.path("set").fields().forEachRemaining(each -> changes.add(new AlterConfigOp(
            new ConfigEntry(each.getKey(), each.getValue().asText()), AlterConfigOp.OpType.SET)));
        args.path("delete").forEach(each -> changes.add(new AlterConfigOp(
            new ConfigEntry(each.asText(), ""), AlterConfigOp.OpType.DELETE)));
        return admin().incrementalAlterConfigs(Map.of(resource(args), changes)).all().get();
    }

    private Object deleteRecords(JsonNode args) throws Exception {
        RecordsToDelete before = RecordsToDelete.beforeOffset(args.get("before_offset").asLong());
        return admin().deleteRecords(Map.of(partition(args), before)).lowWatermarks().get(partition(args)).get().lowWatermark();
    }

    private Object describeGroup(JsonNode args) throws Exception {
        var found = admin().describeConsumerGroups(List.of(group(args))).all().get().get(group(args));
        return Map.of("state", found.state().toString(), "members", found.members().size());
    }

    private Object describeCluster(JsonNode args) throws Exception {
        var found = admin().describeCluster();
        return Map.of("cluster_id", found.clusterId().get(), "controller", found.controller().get().id(),
            "brokers", new TreeSet<>(ids(found.nodes().get())));
    }

    private static Throwable causeOf(Throwable error) {
        boolean wrapped = error instanceof ExecutionException || error instanceof CompletionException;
        return wrapped && error.getCause() != null ? causeOf(error.getCause()) : error;
    }

    private static String nameOf(Throwable error) {
        Throwable cause = causeOf(error);
        Errors code = Errors.forException(cause);
        return code == Errors.UNKNOWN_SERVER_ERROR ? cause.getClass().getSimpleName() : code.name();
    }

    private Map<String, Object> answer(JsonNode request) {
        Map<String, Object> answer = new HashMap<>();
        Op op = ops.get(request.get("op").asText());
        try {
            if (op == null) {
                answer.put("error", "NOT_IN_CLIENT");
                answer.put("text", request.get("op").asText());
            } else {
                answer.put("ok", op.run(request.get("args")));
            }
        } catch (Exception error) {
            answer.put("error", nameOf(error));
            answer.put("text", String.valueOf(causeOf(error).getMessage()));
        }
        return answer;
    }

    public static void main(String[] arguments) throws Exception {
        JavaDriver driver = new JavaDriver(arguments[0]);
        PrintStream answers = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            JsonNode request = JSON.readTree(line);
            if (request.get("op").asText().equals("close")) break;
            answers.println(JSON.writeValueAsString(driver.answer(request)));
        }
        if (driver.admin != null) driver.admin.close(Duration.ofSeconds(1));
    }
}
