/** URLs that try to lead inside, made from every spelling that an address and a URL have. */

/** Addresses that no stranger may reach: loopback, private, link-local, shared, metadata, reserved, multicast. */
const INSIDE_V4 = [
  "127.0.0.1",
  "127.1.2.3",
  "127.255.255.254",
  "0.0.0.0",
  "0.1.2.3",
  "10.0.0.1",
  "10.255.255.255",
  "100.64.0.1",
  "100.100.100.200",
  "169.254.169.254",
  "169.254.170.2",
  "172.16.0.1",
  "172.31.255.254",
  "192.0.0.192",
  "192.0.2.1",
  "192.88.99.1",
  "192.168.0.1",
  "198.18.0.1",
  "203.0.113.7",
  "168.63.129.16",
  "224.0.0.1",
  "240.0.0.1",
  "255.255.255.255",
];

const INSIDE_V6 = [
  "::",
  "::1",
  "0:0:0:0:0:0:0:1",
  "0000:0000:0000:0000:0000:0000:0000:0001",
  "::2",
  "fe80::1",
  "febf::1",
  "fec0::1",
  "fc00::1",
  "fd00::2",
  "fd00:ec2::254",
  "fd20:ce::254",
  "ff02::1",
  "ff0e::1",
  "100::1",
  "2001:db8::1",
  "3fff::1",
  "2001::1",
  "2001:2::1",
  "2001:10::1",
  "2001:20::1",
  "5f00::1",
  "4000::1",
  "8000::1",
  "::ffff:0:0",
];

const bytesOf = (address: string): readonly number[] => address.split(".").map(Number);
const hex = (value: number, digits = 1): string => value.toString(16).padStart(digits, "0");
const octal = (value: number): string => `0${value.toString(8)}`;
const whole = (address: string): number => bytesOf(address).reduce((sum, byte) => sum * 256 + byte, 0);
const styled = (address: string, zero: number): string =>
  address.replace(/\d/g, (digit) => String.fromCodePoint(zero + Number(digit)));

/** Each takes a dotted address and writes the same one otherwise, as a URL's host. */
const SPELLINGS: readonly ((address: string) => string)[] = [
  (a) => a,
  (a) => `${a}.`,
  (a) => String(whole(a)),
  (a) => `0x${hex(whole(a), 8)}`,
  (a) => `0X${hex(whole(a), 8).toUpperCase()}`,
  (a) => `0x00000000${hex(whole(a), 8)}`,
  (a) => octal(whole(a)),
  (a) =>
    bytesOf(a)
      .map((byte) => `0x${hex(byte)}`)
      .join("."),
  (a) => bytesOf(a).map(octal).join("."),
  (a) =>
    bytesOf(a)
      .map((byte) => `0000${octal(byte)}`)
      .join("."),
  (a) =>
    bytesOf(a)
      .map((byte, i) => (i % 2 === 0 ? `0x${hex(byte, 2)}` : octal(byte)))
      .join("."),
  (a) => `${bytesOf(a)[0]}.${whole(a) % 2 ** 24}`,
  (a) => `${bytesOf(a)[0]}.${bytesOf(a)[1]}.${whole(a) % 2 ** 16}`,
  (a) => styled(a, 0xff10),
  (a) => styled(a, 0x1d7d8),
  (a) => styled(a, 0x1d7f6),
  (a) => a.replaceAll(".", "。"),
  (a) => a.replaceAll(".", "．"),
  (a) => a.replace(/[0-9]/, (digit) => `%3${digit}`),
  (a) => a.replaceAll(".", "%2e"),
  (a) => `[::ffff:${a}]`,
  (a) => `[0:0:0:0:0:FFFF:${a}]`,
  (a) => `[::ffff:${hex(whole(a) >>> 16)}:${hex(whole(a) & 0xffff)}]`,
  (a) => `[::${a}]`,
  (a) => `[::ffff:0:${a}]`,
  (a) => `[64:ff9b::${a}]`,
  (a) => `[64:ff9b:1::${a}]`,
  (a) => `[2002:${hex(whole(a) >>> 16)}:${hex(whole(a) & 0xffff)}::1]`,
  (a) => `[2001:0:${hex(whole(a) >>> 16)}:${hex(whole(a) & 0xffff)}::1]`,
];

/** Names that resolve inside, by convention or by a stranger's DNS. */
const NAMES = [
  "localhost",
  "LOCALHOST",
  "localhost.",
  "api.localhost",
  "localhost.localdomain",
  "ip6-localhost",
  "printer.local",
  "metadata",
  "metadata.google.internal",
  "metadata.goog",
  "instance-data.ec2.internal",
  "kubernetes.default.svc",
  "kubernetes.default.svc.cluster.local",
  "host.docker.internal",
  "db",
  "127.0.0.1.nip.io",
  "7f000001.rebind.example",
  "make-127-0-0-1-rr.example",
  "spoofed.example.com",
  "xn--lcalhost-9wa.example",
  "lоcalhost.example",
  "ⓛocalhost",
  "ｌｏｃａｌｈｏｓｔ",
  "loc%61lhost",
  "0x7f.0.0.1.example",
  "a".repeat(63),
];

/** Whole URLs whose trick isn't the host's spelling; `P` stands for the canary's port. */
const TRICKS = [
  "http://example.com@127.0.0.1:P/",
  "http://example.com:80@127.0.0.1:P/",
  "http://@127.0.0.1:P/",
  "http://:@127.0.0.1:P/",
  "http://user:pass@localhost:P/",
  "http://example.com%40127.0.0.1:P/",
  "http://example.com#@127.0.0.1:P/\\",
  "http://127.0.0.1:P\\@example.com/",
  "http:\\\\127.0.0.1:P\\",
  "http:/\\127.0.0.1:P/",
  "http:/127.0.0.1:P/",
  "http:127.0.0.1:P/",
  "http:///127.0.0.1:P/",
  "http:////127.0.0.1:P/",
  "//127.0.0.1:P/",
  "127.0.0.1:P/",
  " http://127.0.0.1:P/",
  "http://127.0.0.1:P/ ",
  "\thttp://127.0.0.1:P/",
  "ht\ntp://127.0.0.1:P/",
  "http://127.0.\r\n0.1:P/",
  "http://127.0.0.1:P/\r\nHost: example.com",
  "http://127.0.0.1:P/\u0000",
  "http://127.0.0.1\u0000.example.com:P/",
  "http://127.0.0.1\u00ad:P/",
  "http://127.0.0.1\u200b:P/",
  "http://\u202e127.0.0.1:P/",
  "http://127.0.0.1:P/\ud800",
  "http://127.0.0.1 :P/",
  "http://127.0.0.1\u3000:P/",
  "http://[::1%25lo]:P/",
  "http://[::1%lo]:P/",
  "http://[fe80::1%25eth0]:P/",
  "http://[::1]:P@example.com/",
  "http://[v1.127.0.0.1]:P/",
  "http://::1:P/",
  "http://[127.0.0.1]:P/",
  "http://[::ffff:127.0.0.1:P/",
  "http://127.0.0.1:P:80/",
  "http://127.0.0.1:P%23/",
  "http://127.0.0.1:0/",
  "http://127.0.0.1:22/",
  "http://93.184.215.14:22/",
  "http://93.184.215.14:25/",
  "http://93.184.215.14:6667/",
  "http://93.184.215.14:99999/",
  "http://127.1:P/",
  "http://127.0.1:P/",
  "http://0:P/",
  "http://0x7f.1:P/",
  "http://017700000001:P/",
  "http://127.0.0.0x1:P/",
  "http://256.256.256.256:P/",
  "http://4294967296:P/",
  "http://1.2.3.4.5:P/",
  "http://.127.0.0.1:P/",
  "http://127..0.0.1:P/",
  "file:///etc/passwd",
  "file://127.0.0.1:P/etc/passwd",
  "ftp://127.0.0.1:P/",
  "gopher://127.0.0.1:P/_GET%20/",
  "dict://127.0.0.1:P/info",
  "ldap://127.0.0.1:P/",
  "jar:http://127.0.0.1:P/!/",
  "view-source:http://127.0.0.1:P/",
  "blob:http://127.0.0.1:P/1",
  "javascript:fetch('http://127.0.0.1:P')",
  "unix:/var/run/docker.sock",
  "http+unix://%2Fvar%2Frun%2Fdocker.sock/info",
  "netdoc:///etc/hosts",
  "data:text/plain,x",
  "about:blank",
  "",
  "http://",
  "http://?127.0.0.1:P",
  "http://#127.0.0.1:P",
  `http://127.0.0.1:P/${"a".repeat(5000)}`,
];

/** Every hostile URL, aimed at the given port where it names one. All are distinct. */
export function hostileUrls(port: number): readonly string[] {
  const hosts = [
    ...INSIDE_V4.flatMap((address) => SPELLINGS.map((spell) => spell(address))),
    ...INSIDE_V6.map((address) => `[${address}]`),
    ...NAMES,
  ];
  const urls = hosts.map((host) => `http://${host}:${port}/secret`);
  return [...new Set([...urls, ...TRICKS.map((trick) => trick.replaceAll("P", String(port)))])];
}

/** What a real user gives: public names and addresses, ports that model servers use, paths and queries of presigned links. */
export const LEGITIMATE_URLS: readonly string[] = [
  "https://example.com/frame.png",
  "https://EXAMPLE.com./frame.png",
  "https://例え.jp/frame.png",
  "https://xn--r8jz45g.jp/frame.png",
  "https://bucket.s3.eu-central-1.amazonaws.com/a/b%20c.jpg?X-Amz-Signature=0f&X-Amz-Expires=60#top",
  "https://storage.googleapis.com/b/o/frame.webp?alt=media",
  "https://example.com/@user/frame.png",
  "https://example.com/?next=http://127.0.0.1/",
  ...[
    "1.1.1.1",
    "8.8.8.8",
    "93.184.215.14",
    "172.15.0.1",
    "172.32.0.1",
    "192.167.1.1",
    "100.63.0.1",
    "169.253.1.1",
  ].flatMap((address) =>
    ["", ":443", ":80", ":8000", ":8080", ":8443", ":5555", ":10093", ":65535"].map(
      (port) => `https://${address}${port}/`,
    ),
  ),
  ...["2606:4700::1111", "2a00:1450:4001::8a", "2400:cb00::1", "::ffff:8.8.8.8"].flatMap((address) =>
    ["", ":443", ":8000", ":9000", ":30000"].map((port) => `https://[${address}]${port}/x`),
  ),
];
