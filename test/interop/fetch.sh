# sourced by the start.sh files: downloads a server once. If several tests need it at the same time, one downloads and the others wait.

# alone <name> <command>...: runs the command exclusively, if there is flock.
alone() (
  name=$1; shift
  mkdir -p "$cache"
  if command -v flock >/dev/null; then exec 9>"$cache/$name.lock"; flock 9; fi
  "$@" 9>&-
)

# debs <dir> <package>...: Debian packages by apt-get download, unpacked; no root needed. Skips packages that exist; needs apt-get and dpkg.
debs() { alone "$(basename "$1")" fetch_debs "$@"; }

fetch_debs() {
  dir=$1; shift
  [ -e "$dir/.ok" ] && return 0
  command -v apt-get >/dev/null && command -v dpkg >/dev/null || { echo "debs: apt-get and dpkg are needed" >&2; return 1; }
  rm -rf "$dir"; mkdir -p "$dir/deb"
  # A new machine has no package lists yet; only root may download them.
  (cd "$dir/deb" && { apt-get -q download "$@" >apt.log 2>&1 || { [ "$(id -u)" = 0 ] && apt-get -q update >>apt.log 2>&1 && apt-get -q download "$@" >>apt.log 2>&1; }; }) || { cat "$dir/deb/apt.log" >&2; echo "debs: could not download $* (apt-get update first?)" >&2; return 1; }
  for f in "$dir"/deb/*.deb; do dpkg -x "$f" "$dir" || return 1; done
  # Debian's erl script has a fixed ROOTDIR=/usr/lib/erlang: it is changed to the unpacked copy.
  erl=$dir/usr/lib/erlang/bin/erl
  [ ! -e "$erl" ] || sed -i 's#ROOTDIR=/usr/lib/erlang#ROOTDIR="$INTEROP_ERL"#' "$erl"
  rm -rf "$dir/deb"; touch "$dir/.ok"
}

# jars <dir> <pom>: the dependencies of the pom, by Maven. Skips jars that exist.
jars() { alone "$(basename "$(dirname "$1")")" fetch_jars "$@"; }

fetch_jars() {
  [ -e "$1/.ok" ] && return 0
  command -v mvn >/dev/null || { echo "jars: mvn not found" >&2; return 1; }
  mvn -B -q -f "$2" dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$1" >&2 || { echo "jars: maven could not fetch $2" >&2; return 1; }
  touch "$1/.ok"
}
