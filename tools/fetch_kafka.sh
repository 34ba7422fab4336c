#!/bin/sh
# usage: tools/fetch_kafka.sh CACHE VERSION…  -> CACHE/VERSION/*.jar, Apache Kafka's published jars, through Maven.
# Without Maven, or if Maven cannot fetch them, it says so and ends with status 0: the tests are skipped.
set -eu
cache=$1
shift
here=$(dirname "$0")

copy_jars() { # VERSION DIRECTORY [Maven's options]
    version=$1 directory=$2
    shift 2
    mvn --quiet --batch-mode -Dstyle.color=never --file "$here/kafka_jars.xml" "-Dkafka.version=$version" "$@" \
        dependency:copy-dependencies -DincludeScope=runtime "-DoutputDirectory=$directory"
}

has_tools() { # DIRECTORY; kafka-tools-api alone does not count
    [ -n "$(find "$1" -name 'kafka-tools-[0-9]*.jar')" ]
}

tests_with_tools() { # test files that use a command line tool through tests/support/kafka/kafka_jars.py
    cd "$here/.." && grep -lE '\b(need_tools|newest_with_tools|dump_log)\(' tests/real_kafka/*/test_*.py | sed 's/^/    /'
}

fetch() { # VERSION
    if ! command -v mvn > /dev/null; then
        echo "Maven (mvn) is not installed, so Kafka $1 cannot be fetched: its tests are skipped" >&2
        return 0
    fi
    echo "fetching Apache Kafka $1 …"
    mkdir -p "$cache"
    part=$(mktemp -d "$cache/.fetching.XXXXXX")
    if ! copy_jars "$1" "$part" --activate-profiles tools > /dev/null 2>&1; then
        echo "its command line tools cannot be fetched; trying the broker alone"
        copy_jars "$1" "$part" || {
            rm -rf "$part"
            echo "Kafka $1 could not be fetched: its tests are skipped" >&2
            return 0
        }
    fi
    chmod 755 "$part"
    mv "$part" "$cache/$1"
}

without_tools=
for version in "$@"; do
    [ -d "$cache/$version" ] || fetch "$version"
    [ ! -d "$cache/$version" ] || has_tools "$cache/$version" || without_tools="$without_tools $version"
done
if [ -n "$without_tools" ]; then
    echo "Kafka$without_tools: the broker is here, its command line tools are not. Tests that need them are skipped, in"
    tests_with_tools
    echo "To try again, remove the version's directory in $cache"
fi
