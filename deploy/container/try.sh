#!/usr/bin/env bash
# Builds the image without an engine and without a registry of images, and runs it once: buildah in a chroot, on a base that is made of
# this machine's own Node. What it does not show: the real bases, other architectures, an engine's own isolation.
#   deploy/container/try.sh [image]      prints what the gateway says of itself, and the size
set -euo pipefail
cd "$(dirname "$0")/../.."
image=${1:-localhost/limber:try}
export BUILDAH_ISOLATION=chroot STORAGE_DRIVER=vfs
# The project's own Node, which npm ci brings; else the one on the path.
node=$PWD/node_modules/node/bin/node
[ -x "$node" ] || node=$(node -p process.execPath)
npm=$(dirname "$(readlink -f "$(command -v npm)")")/..

# A folder that holds programs and the libraries that they load.
root() {
  local to=$1
  shift
  mkdir -p "$to"/{bin,tmp,etc,nodejs/bin,usr/bin,proc,root}
  chmod 1777 "$to/tmp"
  for program in "$@"; do
    ldd "$program" 2>/dev/null | grep -o '/[^ )]*' | sort -u | while read -r library; do
      mkdir -p "$to$(dirname "$library")" && cp -nL "$library" "$to$library"
    done
  done
  for name in libnss_dns.so.2 libnss_files.so.2 libresolv.so.2; do
    cp -nL "/lib/$(uname -m)-linux-gnu/$name" "$to/lib/$(uname -m)-linux-gnu/" 2>/dev/null || true
  done
  cp -L "$node" "$to/nodejs/bin/node"
  ln -sf /nodejs/bin/node "$to/usr/bin/node"
  echo 'root:x:0:0:root:/root:/bin/sh' >"$to/etc/passwd"
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root "$work/base" "$node" /bin/sh
root "$work/build" "$node" /bin/sh /bin/rm /usr/bin/env /usr/bin/find
cp -L /bin/sh /bin/rm "$work/build/bin/"
cp -L /usr/bin/env /usr/bin/find "$work/build/usr/bin/"
mkdir -p "$work/build/npm" && cp -rL "$npm/." "$work/build/npm/"
printf '#!/bin/sh\nexec /nodejs/bin/node /npm/bin/npm-cli.js "$@"\n' >"$work/build/usr/bin/npm"
chmod +x "$work/build/usr/bin/npm"
# What this machine's npm is told of its registry.
for file in "$(npm config get userconfig)" "$(npm config get globalconfig)"; do
  if [ -f "$file" ]; then cat "$file"; fi
done >"$work/build/root/.npmrc"
mkdir -p "$work/build/etc/ssl/certs"
cp -L /etc/ssl/certs/ca-certificates.crt "$work/build/etc/ssl/certs/" 2>/dev/null || true
extra=()
if [ -n "${NODE_EXTRA_CA_CERTS:-}" ]; then
  cp -L "$NODE_EXTRA_CA_CERTS" "$work/build/etc/ssl/certs/extra.pem"
  extra=(--env NODE_EXTRA_CA_CERTS=/etc/ssl/certs/extra.pem)
fi

for stage in base build; do
  container=$(buildah from scratch)
  buildah copy -q "$container" "$work/$stage" / >/dev/null
  buildah config --entrypoint '["/nodejs/bin/node"]' --env PATH=/bin:/usr/bin:/nodejs/bin --env HOME=/root "${extra[@]}" "$container"
  buildah commit -q "$container" "localhost/limber-$stage" >/dev/null
  buildah rm "$container" >/dev/null
done
buildah bud -q --network host -f deploy/container/Containerfile --ignorefile deploy/container/Containerfile.containerignore \
  --build-arg BUILD=localhost/limber-build --build-arg BASE=localhost/limber-base -t "$image" .
buildah inspect --type image --format '{{.OCIv1.Config.User}} {{.OCIv1.Config.Cmd}}' "$image"
container=$(buildah from "$image")
at=$(buildah mount "$container")
echo "the application: $(du -sm "$at/app" | cut -f1) MB"
# Without settings for production it has to end in words, as the account that it runs as.
buildah run --user 65532 --env DATABASE_URL=postgres://nobody@127.0.0.1:1/none "$container" -- /nodejs/bin/node src/main.ts 2>&1 || true
# And with a database it has to serve, on a root that it can't write.
"$node" --input-type=module -e "
  import { startPostgres } from './src/embedded/postgres.ts';
  await startPostgres({ dataDir: '$work/data', settings: { listen_addresses: '127.0.0.1', port: '15439', fsync: 'off' } });
  setInterval(() => {}, 1_000);
" &
database=$!
trap 'kill $database 2>/dev/null || true; rm -rf "$work"' EXIT
buildah run --user 65532 --network host --env PORT=18089 --env LIMBER_OPERATIONS_PORT=18090 --env HOST=127.0.0.1 \
  --env DATABASE_URL=postgres://limber@127.0.0.1:15439/postgres --env SERVICE_ADMIN_TOKEN=an-operators-token-for-tests \
  --env LIMBER_DRAIN_DELAY_S=0 --env LIMBER_MASTER_KEY="$(head -c 32 /dev/zero | base64)" "$container" -- /nodejs/bin/node src/main.ts &
served=$!
for _ in $(seq 120); do
  answer=$("$node" -e "fetch('http://127.0.0.1:18090/ready').then(async (it) => console.log(it.status, await it.text()), () => {})")
  case "$answer" in 200*) break ;; esac
  sleep 1
done
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
buildah umount "$container" >/dev/null
buildah rm "$container" >/dev/null
case "$answer" in 200*) ;; *) exit 1 ;; esac
