# What the tools that get servers for the lab share.
#
# A kit is a folder with a start program, a script that turns into another program (a loader, java). The
# link beside it, with `.process` added to its name, says into which: by that the lab tells the server's
# processes from others. A kit has its final name only when it is whole.

fail() {
  echo "$(basename "$0"): $*" >&2
  exit 1
}

# need PROGRAM... ADVICE
need() {
  local program
  for program in "${@:1:$#-1}"; do
    command -v "$program" >/dev/null || fail "there is no $program: ${*: -1}"
  done
}

# begin STORE PROGRAM [FOLDER]: sets $folder, the kit to be; $kit, where it is made; $work, for scratch. Ends
# the tool where the kit is there. Without FOLDER it is where the lab looks (`kit` in
# crates/lab/src/kinds/mod.rs): root's servers run as another user, who could not pass through root's home.
# With --there for FOLDER the tool only says by its status whether that one is there.
begin() {
  local cache=${XDG_CACHE_HOME:-}
  if [ -z "$cache" ]; then
    if [ "$(id -u)" = 0 ]; then cache=/var/cache; else cache=$HOME/.cache; fi
  fi
  program=$2
  folder=$cache/acidtest/$1
  if [ "${3:-}" = --there ]; then
    whole && exit 0 || exit 1
  fi
  folder=$(realpath -m "${3:-$folder}")
  if whole; then
    echo "$folder/$program is there already; remove its folder to get it anew"
    exit 0
  fi
  [ ! -e "$folder" ] || fail "$folder holds something else, or a server whose Java is gone: remove it first"
  umask 022
  mkdir -p "$(dirname "$folder")"
  work=$(mktemp -d "$(dirname "$folder")/.get-XXXXXX")
  trap 'rm -rf "$work"' EXIT
  trap 'exit 1' HUP INT TERM
  kit=$work/kit
  mkdir "$kit"
}

whole() { [ -x "$folder/$program" ] && [ -e "$folder/$program.process" ]; }

# Gives the kit its name, if its program answers there to whoever is to run it.
finish() {
  local as=()
  chmod 755 "$kit/$program"
  mv "$kit" "$folder"
  if [ "$(id -u)" = 0 ]; then as=(setpriv --reuid=nobody --regid="$(id -g nobody)" --clear-groups); fi
  if ! version=$("${as[@]}" "$folder/$program" --version); then
    mv "$folder" "$kit"
    fail "$folder/$program does not answer --version; root's servers run as nobody, who must reach it"
  fi
  echo "$version"
  echo "is now in $folder"
}
