#!/usr/bin/env bash
# Builds the image without an engine and without a registry of images, and runs it once: buildah in a chroot, on a base that is made of
# this machine's own Node. What it does not show: the real bases, other architectures, an engine's own isolation.
#   deploy/container/try.sh      prints what the gateway says of itself, and the size
set -euo pipefail
cd "$(dirname "$0")/../.."
# The project's own Node, which npm ci brings; else the one on the path.
node=$PWD/node_modules/node/bin/node
[ -x "$node" ] || node=$(node -p process.execPath)

work=$(mktemp -d)
# Two runs at once share no images, containers or ports.
driver=overlay
images() { buildah --root "$work/storage" --runroot "$work/run" --storage-driver "$driver" "$@"; }
export BUILDAH_ISOLATION=chroot
database=
finish() {
  [ -z "$database" ] || { kill "$database" && wait "$database"; } 2>/dev/null || true
  # The container's file system, and what overlays add.
  awk -v at="$work/" 'index($2, at) == 1 { print $2 }' /proc/mounts | sort -r | xargs -r umount
  rm -rf "$work"
}
trap finish EXIT

# Adds programs, and the libraries that they load, to a folder.
add() {
  for program in "${@:2}"; do
    { echo "$program"; ldd "$program" 2>/dev/null | grep -o '/[^ )]*' || true; } | sort -u | while read -r file; do
      mkdir -p "$1$(dirname "$file")" && cp -nL "$file" "$1$file"
    done
  done
}
# Commits as a name a container of this image with this folder added, and these options.
commit() {
  local container
  container=$(images from "$2")
  images copy -q "$container" "$3" / >/dev/null
  images config --entrypoint '["/nodejs/bin/node"]' --env PATH=/bin:/usr/bin:/nodejs/bin --env HOME=/root "${@:4}" "$container"
  images commit -q "$container" "localhost/limber-$1" >/dev/null
  images rm "$container" >/dev/null
}

base=$work/base
mkdir -p "$base"/{bin,tmp,etc,nodejs/bin,usr/bin,proc,root}
chmod 1777 "$base/tmp"
add "$base" "$node" /bin/sh
mv "$base$node" "$base/nodejs/bin/node"
ln -s /nodejs/bin/node "$base/usr/bin/node"
libraries=/lib/$(uname -m)-linux-gnu
for name in libnss_dns.so.2 libnss_files.so.2 libresolv.so.2; do cp -nL "$libraries/$name" "$base$libraries/" 2>/dev/null || true; done
echo 'root:x:0:0:root:/root:/bin/sh' >"$base/etc/passwd"

tools=$work/tools
mkdir -p "$tools"/{npm,root,usr/bin,etc/ssl/certs}
add "$tools" /bin/rm /usr/bin/env /usr/bin/find
cp -rL "$(dirname "$(readlink -f "$(command -v npm)")")/../." "$tools/npm/"
printf '#!/bin/sh\nexec /nodejs/bin/node /npm/bin/npm-cli.js "$@"\n' >"$tools/usr/bin/npm"
chmod +x "$tools/usr/bin/npm"
# What this machine's npm is told of its registry.
for file in "$(npm config get userconfig)" "$(npm config get globalconfig)"; do
  if [ -f "$file" ]; then cat "$file"; fi
done >"$tools/root/.npmrc"
cp -L /etc/ssl/certs/ca-certificates.crt "$tools/etc/ssl/certs/" 2>/dev/null || true
options=()
if [ -n "${NODE_EXTRA_CA_CERTS:-}" ]; then
  cp -L "$NODE_EXTRA_CA_CERTS" "$tools/etc/ssl/certs/extra.pem"
  options=(--env NODE_EXTRA_CA_CERTS=/etc/ssl/certs/extra.pem)
fi

# Overlays need a kernel and a file system that allow them.
commit base scratch "$base" 2>/dev/null || { driver=vfs; rm -rf "$work"/{storage,run}; commit base scratch "$base"; }
commit build localhost/limber-base "$tools" "${options[@]}"
images bud -q --network host -f deploy/container/Containerfile --ignorefile deploy/container/Containerfile.containerignore \
  --build-arg BUILD=localhost/limber-build --build-arg BASE=localhost/limber-base -t localhost/limber:try .
images inspect --type image --format '{{.OCIv1.Config.User}} {{.OCIv1.Config.Cmd}}' localhost/limber:try
container=$(images from localhost/limber:try)
echo "the application: $(du -sm "$(images mount "$container")/app" | cut -f1) MB"
run() { images run --user 65532 --network host "${@:1:$#-1}" "${@: -1}" -- /nodejs/bin/node src/main.ts; }
# Without settings for production it has to end in words, as the account that it runs as.
said=$(run --env DATABASE_URL=postgres://nobody@127.0.0.1:1/none "$container" 2>&1) && { echo "it ran without settings"; exit 1; }
echo "$said"
grep -q '^limber: SERVICE_ADMIN_TOKEN must be set' <<<"$said"
# And with a database it has to serve, on a root that it can't write.
"$node" --input-type=module -e "
  import { createServer } from 'node:net';
  import { startPostgres } from './src/embedded/postgres.ts';
  const taken = createServer().listen(0, '127.0.0.1', () => {
    const { port } = taken.address();
    taken.close(async () => {
      const settings = { listen_addresses: '127.0.0.1', port: String(port), fsync: 'off' };
      await startPostgres({ dataDir: '$work/data', settings });
      console.log('postgres://limber@127.0.0.1:' + port + '/postgres');
      setInterval(() => {}, 1_000);
    });
  });
" >"$work/database" &
database=$!
# Waits until a program's output has a line like this, while a process runs.
wait_for() {
  until grep -qs "$2" "$1"; do
    kill -0 "$3" 2>/dev/null || { cat "$1"; exit 1; }
    read -rt 0.1 <> <(:) || true
  done
}
wait_for "$work/database" postgres: "$database"
run --env PORT=0 --env LIMBER_OPERATIONS_PORT=0 --env HOST=127.0.0.1 --env DATABASE_URL="$(cat "$work/database")" \
  --env SERVICE_ADMIN_TOKEN=an-operators-token-for-tests --env LIMBER_DRAIN_DELAY_S=0 \
  --env LIMBER_MASTER_KEY="$(head -c 32 /dev/zero | base64)" "$container" >"$work/served" 2>&1 &
served=$!
wait_for "$work/served" '^operations at port' "$served"
cat "$work/served"
port=$(sed -n 's/^operations at port //p' "$work/served")
answer=$("$node" -e "fetch('http://127.0.0.1:$port/ready').then(async (it) => console.log(it.status, await it.text()))")
echo "ready: $answer"
# The process itself: buildah passes no signal on.
below() {
  local child
  for child in $(pgrep -P "$1" || true); do
    below "$child"
    kill "$child" 2>/dev/null || true
  done
}
below "$served"
wait "$served" || true
case "$answer" in 200*) ;; *) exit 1 ;; esac
