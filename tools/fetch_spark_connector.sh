#!/bin/sh
# usage: tools/fetch_spark_connector.sh CACHE VERSION…  -> CACHE/VERSION/*.jar, Spark's own Kafka connector with
# the jars that pyspark does not have, through Maven. Fetches the first version that Maven can get; prints its folder.
# Without Maven, or if Maven can get none, it says so and ends with status 0: the tests are skipped.
set -eu
cache=$1
shift

for version in "$@"; do
    if [ ! -d "$cache/$version" ]; then
        if ! command -v mvn > /dev/null; then
            echo "Maven (mvn) is not installed, so Spark's Kafka connector cannot be fetched" >&2
            exit
        fi
        echo "fetching Spark's Kafka connector $version …" >&2
        mkdir -p "$cache"
        part=$(mktemp -d "$cache/.fetching.XXXXXX")
        if ! mvn --quiet --batch-mode -Dstyle.color=never --file "$(dirname "$0")/spark_connector_jars.xml" \
            "-Dspark.version=$version" dependency:copy-dependencies -DincludeScope=runtime \
            "-DoutputDirectory=$part" > "$part/log" 2>&1; then
            rm -rf "$part"
            echo "version $version cannot be fetched" >&2
            continue
        fi
        rm "$part/log"
        chmod 755 "$part"
        mv "$part" "$cache/$version"
    fi
    echo "$cache/$version"
    exit
done
