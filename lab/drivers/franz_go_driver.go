// franz-go behind the contract's vocabulary: one JSON object a line in, one out.
// See testing/contract/vocabulary.py.
package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

type record struct {
	Partition *int32      `json:"partition"`
	Offset    int64       `json:"offset"`
	Timestamp *int64      `json:"timestamp_ms"`
	Key       *string     `json:"key"`
	Value     *string     `json:"value"`
	Headers   [][]*string `json:"headers"`
}

type arguments struct {
	Bootstrap         string             `json:"bootstrap"`
	Topic             string             `json:"topic"`
	Partition         int32              `json:"partition"`
	Partitions        int32              `json:"partitions"`
	ReplicationFactor int16              `json:"replication_factor"`
	Configs           map[string]*string `json:"configs"`
	ValidateOnly      bool               `json:"validate_only"`
	Records           []record           `json:"records"`
	Acks              string             `json:"acks"`
	Idempotent        bool               `json:"idempotent"`
	Compression       string             `json:"compression"`
	TransactionalID   string             `json:"transactional_id"`
	Commit            *bool              `json:"commit"`
	Create            bool               `json:"create"`
	Offset            int64              `json:"offset"`
	Offsets           map[string][2]any  `json:"offsets"`
	Count             int                `json:"count"`
	Isolation         string             `json:"isolation"`
	TimeoutMs         int                `json:"timeout_ms"`
	Group             string             `json:"group"`
	At                json.RawMessage    `json:"at"`
	Kind              string             `json:"kind"`
	Name              string             `json:"name"`
	Set               map[string]string  `json:"set"`
	Delete            []string           `json:"delete"`
	BeforeOffset      int64              `json:"before_offset"`
	Security          security           `json:"security"`
}

type security struct {
	Protocol      string `json:"security_protocol"`
	CAFile        string `json:"ssl_cafile"`
	CheckHostname *bool  `json:"ssl_check_hostname"`
	Mechanism     string `json:"sasl_mechanism"`
	Username      string `json:"sasl_plain_username"`
	Password      string `json:"sasl_plain_password"`
}

type failure struct{ name, text string }

func (f failure) Error() string { return f.text }

var (
	seeds    []string
	secured  []kgo.Opt
	admin    *kadm.Client
	patience = 20 * time.Second
)

func client(more ...kgo.Opt) (*kgo.Client, error) {
	options := append([]kgo.Opt{
		kgo.SeedBrokers(seeds...),
		kgo.ClientID("contract-franz-go"),
		kgo.RequestRetries(5),
		kgo.FetchMaxWait(100 * time.Millisecond),
	}, secured...)
	return kgo.NewClient(append(options, more...)...)
}

func securityOptions(s security) ([]kgo.Opt, error) {
	options := []kgo.Opt{}
	if strings.HasSuffix(s.Protocol, "SSL") {
		config := &tls.Config{}
		if s.CAFile != "" {
			pem := []byte(s.CAFile)
			if !strings.Contains(s.CAFile, "-----BEGIN") {
				var err error
				if pem, err = os.ReadFile(s.CAFile); err != nil {
					return nil, err
				}
			}
			config.RootCAs = x509.NewCertPool()
			config.RootCAs.AppendCertsFromPEM(pem)
		}
		if s.CheckHostname != nil && !*s.CheckHostname {
			// Go knows both checks or none, so the certificate is checked here, without the name.
			config.InsecureSkipVerify = true
			config.VerifyConnection = func(state tls.ConnectionState) error {
				between := x509.NewCertPool()
				for _, each := range state.PeerCertificates[1:] {
					between.AddCert(each)
				}
				_, err := state.PeerCertificates[0].Verify(
					x509.VerifyOptions{Roots: config.RootCAs, Intermediates: between})
				return err
			}
		}
		options = append(options, kgo.DialTLSConfig(config))
	}
	mechanisms := map[string]sasl.Mechanism{
		"PLAIN":         plain.Auth{User: s.Username, Pass: s.Password}.AsMechanism(),
		"SCRAM-SHA-256": scram.Auth{User: s.Username, Pass: s.Password}.AsSha256Mechanism(),
		"SCRAM-SHA-512": scram.Auth{User: s.Username, Pass: s.Password}.AsSha512Mechanism(),
	}
	if mechanism, found := mechanisms[s.Mechanism]; found && strings.HasPrefix(s.Protocol, "SASL") {
		options = append(options, kgo.SASL(mechanism))
	}
	return options, nil
}

func decoded(text *string) []byte {
	if text == nil {
		return nil
	}
	value, err := base64.StdEncoding.DecodeString(*text)
	if err != nil {
		panic(err)
	}
	if value == nil {
		value = []byte{}
	}
	return value
}

func encoded(value []byte) *string {
	if value == nil {
		return nil
	}
	text := base64.StdEncoding.EncodeToString(value)
	return &text
}

func open(_ context.Context, a arguments) (any, error) {
	seeds = strings.Split(a.Bootstrap, ",")
	var err error
	if secured, err = securityOptions(a.Security); err != nil {
		return nil, err
	}
	c, err := client()
	if err != nil {
		return nil, err
	}
	if admin != nil {
		admin.Close()
	}
	admin = kadm.NewClient(c)
	version := "?"
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, each := range info.Deps {
			if each.Path == "github.com/twmb/franz-go" {
				version = strings.TrimPrefix(each.Version, "v")
			}
		}
	}
	names := []string{}
	for name := range ops {
		names = append(names, name)
	}
	sort.Strings(names)
	return map[string]any{"name": "franz-go", "version": version, "ops": names}, nil
}

func producerOptions(a arguments) []kgo.Opt {
	options := []kgo.Opt{
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.RecordRetries(5),
		kgo.UnknownTopicRetries(2),
	}
	if a.Create {
		options = append(options, kgo.AllowAutoTopicCreation())
	}
	switch a.Acks {
	case "0":
		options = append(options, kgo.RequiredAcks(kgo.NoAck()))
	case "1":
		options = append(options, kgo.RequiredAcks(kgo.LeaderAck()))
	}
	if a.TransactionalID != "" {
		options = append(options, kgo.TransactionalID(a.TransactionalID))
	} else if !a.Idempotent || a.Acks == "0" || a.Acks == "1" {
		options = append(options, kgo.DisableIdempotentWrite())
	}
	codecs := map[string]kgo.CompressionCodec{
		"gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
		"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	}
	codec, found := codecs[a.Compression]
	if !found {
		codec = kgo.NoCompression()
	}
	return append(options, kgo.ProducerBatchCompression(codec))
}

func kgoRecord(topic string, given record) *kgo.Record {
	r := &kgo.Record{Topic: topic, Key: decoded(given.Key), Value: decoded(given.Value)}
	if given.Partition != nil {
		r.Partition = *given.Partition
	}
	if given.Timestamp != nil {
		r.Timestamp = time.UnixMilli(*given.Timestamp)
	}
	for _, each := range given.Headers {
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: *each[0], Value: decoded(each[1])})
	}
	return r
}

func produce(ctx context.Context, a arguments) (any, error) {
	c, err := client(producerOptions(a)...)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	if len(secured) > 0 {
		// Producing tries again until its time is up; only Ping says that a broker lets nobody in, and why.
		if err := c.Ping(ctx); err != nil {
			return nil, err
		}
	}
	if a.TransactionalID != "" {
		if err := c.BeginTransaction(); err != nil {
			return nil, err
		}
	}
	records := []*kgo.Record{}
	for _, each := range a.Records {
		records = append(records, kgoRecord(a.Topic, each))
	}
	// ProduceSync returns results in the order of deliveries; outcomes are in the order of the given records.
	failed := map[*kgo.Record]error{}
	for _, each := range c.ProduceSync(ctx, records...) {
		failed[each.Record] = each.Err
	}
	outcomes := []any{}
	for _, each := range records {
		if err := failed[each]; err != nil {
			outcomes = append(outcomes, map[string]any{"error": nameOf(err), "text": err.Error()})
			continue
		}
		offset := each.Offset
		if a.Acks == "0" {
			offset = -1
		}
		outcomes = append(outcomes, map[string]any{
			"partition": each.Partition, "offset": offset, "timestamp_ms": each.Timestamp.UnixMilli(),
		})
	}
	if a.TransactionalID != "" {
		end := kgo.TransactionEndTry(a.Commit == nil || *a.Commit)
		if err := c.EndTransaction(ctx, end); err != nil {
			return nil, err
		}
	}
	return outcomes, nil
}

func isolation(a arguments) kgo.Opt {
	if a.Isolation == "read_committed" {
		return kgo.FetchIsolationLevel(kgo.ReadCommitted())
	}
	return kgo.FetchIsolationLevel(kgo.ReadUncommitted())
}

func poll(ctx context.Context, c *kgo.Client, a arguments) ([]*kgo.Record, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(a.TimeoutMs)*time.Millisecond)
	defer cancel()
	records := []*kgo.Record{}
	for len(records) < a.Count && ctx.Err() == nil {
		fetches := c.PollFetches(ctx)
		for _, each := range fetches.Errors() {
			if !errors.Is(each.Err, context.DeadlineExceeded) && !errors.Is(each.Err, context.Canceled) {
				return nil, each.Err
			}
		}
		fetches.EachRecord(func(r *kgo.Record) {
			if len(records) < a.Count {
				records = append(records, r)
			}
		})
	}
	return records, nil
}

func jsonRecords(records []*kgo.Record) []record {
	answers := []record{}
	for _, each := range records {
		partition, timestamp := each.Partition, each.Timestamp.UnixMilli()
		answer := record{
			Partition: &partition, Offset: each.Offset, Timestamp: &timestamp,
			Key: encoded(each.Key), Value: encoded(each.Value), Headers: [][]*string{},
		}
		for _, header := range each.Headers {
			name := header.Key
			answer.Headers = append(answer.Headers, []*string{&name, encoded(header.Value)})
		}
		answers = append(answers, answer)
	}
	return answers
}

func fetch(ctx context.Context, a arguments) (any, error) {
	at := map[string]map[int32]kgo.Offset{a.Topic: {a.Partition: kgo.NewOffset().At(a.Offset)}}
	c, err := client(kgo.ConsumePartitions(at), isolation(a))
	if err != nil {
		return nil, err
	}
	defer c.Close()
	records, err := poll(ctx, c, a)
	return jsonRecords(records), err
}

func consume(ctx context.Context, a arguments) (any, error) {
	c, err := client(
		kgo.ConsumerGroup(a.Group), kgo.ConsumeTopics(a.Topic), isolation(a), kgo.DisableAutoCommit(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
	)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	records, err := poll(ctx, c, a)
	if err == nil && len(records) > 0 {
		err = c.CommitRecords(ctx, records...)
	}
	return jsonRecords(records), err
}

func committed(ctx context.Context, a arguments) (any, error) {
	found, err := admin.FetchOffsets(ctx, a.Group)
	if err != nil {
		return nil, err
	}
	offsets := map[string]any{}
	for partition, each := range found[a.Topic] {
		if each.Err != nil {
			return nil, each.Err
		}
		if each.At >= 0 {
			offsets[strconv.Itoa(int(partition))] = []any{each.At, each.Metadata}
		}
	}
	return offsets, nil
}

func commit(ctx context.Context, a arguments) (any, error) {
	offsets := kadm.Offsets{}
	for partition, each := range a.Offsets {
		number, err := strconv.Atoi(partition)
		if err != nil {
			return nil, err
		}
		offsets.Add(kadm.Offset{
			Topic: a.Topic, Partition: int32(number), LeaderEpoch: -1,
			At: int64(each[0].(float64)), Metadata: each[1].(string),
		})
	}
	return nil, admin.CommitAllOffsets(ctx, a.Group, offsets)
}

func offsets(ctx context.Context, a arguments) (any, error) {
	var listed kadm.ListedOffsets
	var err error
	var millisecond int64
	switch {
	case string(a.At) == `"earliest"`:
		listed, err = admin.ListStartOffsets(ctx, a.Topic)
	case string(a.At) == `"latest"`:
		listed, err = admin.ListEndOffsets(ctx, a.Topic)
	case string(a.At) == `"max_timestamp"`:
		listed, err = admin.ListMaxTimestampOffsets(ctx, a.Topic)
	default:
		if err = json.Unmarshal(a.At, &millisecond); err == nil {
			listed, err = offsetsAt(ctx, a.Topic, a.Partition, millisecond)
		}
	}
	if err != nil {
		return nil, err
	}
	found, ok := listed.Lookup(a.Topic, a.Partition)
	if !ok {
		return nil, kerr.UnknownTopicOrPartition
	}
	return found.Offset, found.Err
}

// kadm returns the log end offset if no record has such a late timestamp; the contract is about the broker's
// own answer.
func offsetsAt(ctx context.Context, topic string, partition int32, ms int64) (kadm.ListedOffsets, error) {
	request := kmsg.NewPtrListOffsetsRequest()
	asked := kmsg.NewListOffsetsRequestTopic()
	asked.Topic = topic
	one := kmsg.NewListOffsetsRequestTopicPartition()
	one.Partition, one.Timestamp = partition, ms
	asked.Partitions = append(asked.Partitions, one)
	request.Topics = append(request.Topics, asked)
	c, err := client()
	if err != nil {
		return nil, err
	}
	defer c.Close()
	for _, shard := range c.RequestSharded(ctx, request) {
		if shard.Err != nil {
			return nil, shard.Err
		}
		answer := shard.Resp.(*kmsg.ListOffsetsResponse).Topics[0].Partitions[0]
		return kadm.ListedOffsets{topic: {partition: kadm.ListedOffset{
			Topic: topic, Partition: partition, Offset: answer.Offset, Err: kerr.ErrorForCode(answer.ErrorCode),
		}}}, nil
	}
	return nil, kerr.UnknownTopicOrPartition
}

func createTopic(ctx context.Context, a arguments) (any, error) {
	factor := a.ReplicationFactor
	if factor == 0 {
		factor = 1
	}
	create := admin.CreateTopics
	if a.ValidateOnly {
		create = admin.ValidateCreateTopics
	}
	answers, err := create(ctx, a.Partitions, factor, a.Configs, a.Topic)
	if err != nil {
		return nil, err
	}
	return nil, answers[a.Topic].Err
}

func deleteTopic(ctx context.Context, a arguments) (any, error) {
	answers, err := admin.DeleteTopics(ctx, a.Topic)
	if err != nil {
		return nil, err
	}
	return nil, answers[a.Topic].Err
}

func listTopics(ctx context.Context, _ arguments) (any, error) {
	found, err := admin.ListTopics(ctx)
	if err != nil {
		return nil, err
	}
	return found.Names(), nil
}

func describeTopic(ctx context.Context, a arguments) (any, error) {
	found, err := admin.ListTopics(ctx, a.Topic)
	if err != nil {
		return nil, err
	}
	if err := found[a.Topic].Err; err != nil {
		return nil, err
	}
	partitions := []any{}
	for _, each := range found[a.Topic].Partitions.Sorted() {
		partitions = append(partitions, map[string]any{
			"partition": each.Partition, "leader": each.Leader, "replicas": each.Replicas, "isr": each.ISR,
		})
	}
	return partitions, nil
}

func createPartitions(ctx context.Context, a arguments) (any, error) {
	answers, err := admin.UpdatePartitions(ctx, a.Count, a.Topic)
	if err != nil {
		return nil, err
	}
	return nil, answers[a.Topic].Err
}

func describeConfigs(ctx context.Context, a arguments) (any, error) {
	var found kadm.ResourceConfigs
	var err error
	if a.Kind == "broker" {
		node, failed := strconv.Atoi(a.Name)
		if failed != nil {
			return nil, failed
		}
		found, err = admin.DescribeBrokerConfigs(ctx, int32(node))
	} else {
		found, err = admin.DescribeTopicConfigs(ctx, a.Name)
	}
	if err != nil {
		return nil, err
	}
	values := map[string]*string{}
	for _, resource := range found {
		if resource.Err != nil {
			return nil, resource.Err
		}
		for _, each := range resource.Configs {
			values[each.Key] = each.Value
		}
	}
	return values, nil
}

func alterConfigs(ctx context.Context, a arguments) (any, error) {
	changes := []kadm.AlterConfig{}
	for name, value := range a.Set {
		changes = append(changes, kadm.AlterConfig{Op: kadm.SetConfig, Name: name, Value: kadm.StringPtr(value)})
	}
	for _, name := range a.Delete {
		changes = append(changes, kadm.AlterConfig{Op: kadm.DeleteConfig, Name: name})
	}
	answers, err := admin.AlterTopicConfigs(ctx, changes, a.Name)
	if err != nil {
		return nil, err
	}
	return nil, answers[0].Err
}

func deleteRecords(ctx context.Context, a arguments) (any, error) {
	before := kadm.Offsets{}
	before.Add(kadm.Offset{Topic: a.Topic, Partition: a.Partition, At: a.BeforeOffset})
	answers, err := admin.DeleteRecords(ctx, before)
	if err != nil {
		return nil, err
	}
	answer, _ := answers.Lookup(a.Topic, a.Partition)
	return answer.LowWatermark, answer.Err
}

func listGroups(ctx context.Context, _ arguments) (any, error) {
	found, err := admin.ListGroups(ctx)
	return found.Groups(), err
}

func describeGroup(ctx context.Context, a arguments) (any, error) {
	found, err := admin.DescribeGroups(ctx, a.Group)
	if err != nil {
		return nil, err
	}
	if err := found[a.Group].Err; err != nil {
		return nil, err
	}
	return map[string]any{"state": found[a.Group].State, "members": len(found[a.Group].Members)}, nil
}

func deleteGroup(ctx context.Context, a arguments) (any, error) {
	answer, err := admin.DeleteGroup(ctx, a.Group)
	if err != nil {
		return nil, err
	}
	return nil, answer.Err
}

func deleteOffsets(ctx context.Context, a arguments) (any, error) {
	partitions := kadm.TopicsSet{}
	partitions.Add(a.Topic, a.Partition)
	answers, err := admin.DeleteOffsets(ctx, a.Group, partitions)
	if err != nil {
		return nil, err
	}
	return nil, answers[a.Topic][a.Partition]
}

func describeCluster(ctx context.Context, _ arguments) (any, error) {
	found, err := admin.BrokerMetadata(ctx)
	return map[string]any{
		"cluster_id": found.Cluster, "controller": found.Controller, "brokers": found.Brokers.NodeIDs(),
	}, err
}

type operation func(context.Context, arguments) (any, error)

var ops map[string]operation

func init() { // not in the declaration: open() reads ops, which would be an initialization cycle
	ops = map[string]operation{
		"open": open, "produce": produce, "fetch": fetch, "consume": consume, "committed": committed,
		"commit": commit, "offsets": offsets, "create_topic": createTopic, "delete_topic": deleteTopic,
		"list_topics": listTopics, "describe_topic": describeTopic, "create_partitions": createPartitions,
		"describe_configs": describeConfigs, "alter_configs": alterConfigs, "delete_records": deleteRecords,
		"list_groups": listGroups, "describe_group": describeGroup, "delete_group": deleteGroup,
		"delete_offsets": deleteOffsets, "describe_cluster": describeCluster,
	}
}

func nameOf(err error) string {
	var own failure
	if errors.As(err, &own) {
		return own.name
	}
	var kafka *kerr.Error
	if errors.As(err, &kafka) {
		return kafka.Message
	}
	return fmt.Sprintf("%T", err)
}

func answer(line []byte) map[string]any {
	var request struct {
		Op   string    `json:"op"`
		Args arguments `json:"args"`
	}
	if err := json.Unmarshal(line, &request); err != nil {
		return map[string]any{"error": "BAD_REQUEST", "text": err.Error()}
	}
	op, known := ops[request.Op]
	if !known {
		return map[string]any{"error": "NOT_IN_CLIENT", "text": request.Op}
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	found, err := op(ctx, request.Args)
	if err != nil {
		return map[string]any{"error": nameOf(err), "text": err.Error()}
	}
	return map[string]any{"ok": found}
}

func main() {
	requests := bufio.NewScanner(os.Stdin)
	requests.Buffer(nil, 64<<20)
	answers := json.NewEncoder(os.Stdout)
	for requests.Scan() {
		if strings.Contains(requests.Text(), `"op": "close"`) {
			break
		}
		if err := answers.Encode(answer(requests.Bytes())); err != nil {
			break
		}
	}
	if admin != nil {
		admin.Close()
	}
}
