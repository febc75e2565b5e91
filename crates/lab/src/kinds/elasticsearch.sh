# Turns into a private Elasticsearch with a TLS proxy in front, as its open jars speak no TLS:
# sh elasticsearch.sh STUNNEL SETTINGS ELASTICSEARCH ARGUMENT...
set -e
stunnel=$1 settings=$2
shift 2
# ends with the process that this one turns into, however that ends, and does not begin without it
setpriv --pdeathsig=KILL -- /bin/sh -c '[ "$PPID" = "$0" ] && exec "$@"' $$ "$stunnel" "$settings" &
exec "$@"
