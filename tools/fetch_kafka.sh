#!/bin/sh
# usage: tools/fetch_kafka.sh CACHE VERSION…  -> CACHE/VERSION/*.jar, Apache Kafka's published jars, through Maven.
# Without Maven, or where it cannot get them, it says so and is content: the tests skip and say why.
set -eu
cache=$1
shift

copy_jars() { # VERSION DIRECTORY [Maven's options]
    version=$1 directory=$2
    shift 2
    mvn --quiet --batch-mode -Dstyle.color=never --file "$(dirname "$0")/kafka_jars.xml" "-Dkafka.version=$version" "$@" \
        dependency:copy-dependencies -DincludeScope=runtime "-DoutputDirectory=$directory"
}

for version in "$@"; do
    [ -d "$cache/$version" ] && continue
    if ! command -v mvn > /dev/null; then
        echo "Maven (mvn) is not installed, so Kafka $version cannot be fetched" >&2
        continue
    fi
    echo "fetching Apache Kafka $version …"
    mkdir -p "$cache"
    part=$(mktemp -d "$cache/.fetching.XXXXXX")
    if ! copy_jars "$version" "$part" --activate-profiles tools > /dev/null 2>&1; then
        echo "its command line tools are not to be had; trying the broker alone"
        copy_jars "$version" "$part" || {
            rm -rf "$part"
            echo "Kafka $version could not be fetched" >&2
            continue
        }
    fi
    chmod 755 "$part"
    mv "$part" "$cache/$version"
done
