# Turns into a private RabbitMQ node: sh rabbitmq.sh PROGRAM ERTS PORT, in the node's home, which is all that
# it writes in. ERTS is the folder of Erlang's own programs; `ports` holds the ports of the port mapper and
# of the distribution.
set -e
read -r mapper distribution <ports
home=$PWD
PATH=${2%/*/*}/bin:$PATH

# names are told apart by port mapper: each node has one of its own
export RABBITMQ_NODENAME=acidtest@localhost
export RABBITMQ_NODE_IP_ADDRESS=127.0.0.1 RABBITMQ_NODE_PORT="$3" RABBITMQ_DIST_PORT="$distribution"
export ERL_EPMD_ADDRESS=127.0.0.1 ERL_EPMD_PORT="$mapper"
export RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS='-kernel inet_dist_use_interface {127,0,0,1}'

# none of the system's settings: those that are not named here are the server's own defaults
export RABBITMQ_BASE="$home" RABBITMQ_MNESIA_BASE="$home/mnesia" RABBITMQ_GENERATED_CONFIG_DIR="$home/generated"
export RABBITMQ_CONF_ENV_FILE="$home/none" RABBITMQ_CONFIG_FILE="$home/rabbitmq.conf"
export RABBITMQ_ADVANCED_CONFIG_FILE="$home/advanced.config" RABBITMQ_ENABLED_PLUGINS_FILE="$home/plugins"
export RABBITMQ_PID_FILE="$home/pid" RABBITMQ_LOG_BASE="$home/log" RABBITMQ_LOGS=-
# its script then becomes Erlang's machine, which stops in order by itself, instead of waiting for it
export RUNNING_UNDER_SYSTEMD=true

# ends with the process that this one turns into, however that ends, and does not begin without it
setpriv --pdeathsig=KILL -- /bin/sh -c '[ "$PPID" = "$0" ] && exec "$@"' $$ \
  "$2/epmd" -port "$mapper" -address 127.0.0.1 &
exec "$1"
