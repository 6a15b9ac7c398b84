/** The required verdict on a target: ALLOW, RETRY (its name has no address now), or a refusal of some class. */
export type Expected = 'ALLOW' | 'RETRY' | 'REJECT' | 'REJECT-UNLOCKABLE' | 'BLOCK-AT-CONNECT'

export interface Target {
  no: number
  url: string
  expected: Expected
  note: string
  /** The answer of the injected resolver for the name. A text is an error code. */
  answers?: string[] | string
}

/** No request is ever sent to these: they are classified, with an injected resolver for names. */
export const targets: Target[] = [
  { no: 1, url: 'http://127.0.0.1/', expected: 'REJECT', note: 'plain loopback' },
  { no: 2, url: 'http://127.0.0.2/', expected: 'REJECT', note: 'whole 127/8' },
  { no: 4, url: 'http://127.1/', expected: 'REJECT', note: 'short form' },
  { no: 6, url: 'http://0/', expected: 'REJECT', note: '= 0.0.0.0' },
  { no: 7, url: 'http://0.0.0.0/', expected: 'REJECT', note: 'reaches local listeners on Linux' },
  { no: 9, url: 'http://2130706433/', expected: 'REJECT', note: 'decimal' },
  { no: 11, url: 'http://0x7f.0x0.0x0.0x1/', expected: 'REJECT', note: 'dotted hex' },
  { no: 12, url: 'http://0x7f.1/', expected: 'REJECT', note: 'hex short' },
  { no: 14, url: 'http://017700000001/', expected: 'REJECT', note: 'octal 32-bit' },
  { no: 16, url: 'http://127.000.000.001/', expected: 'REJECT', note: 'zero-padded' },
  { no: 17, url: 'http://127.0.0.1./', expected: 'REJECT', note: 'trailing dot on an IP' },
  { no: 19, url: 'http://\u2461130706433/', expected: 'REJECT', note: 'circled digit + decimal' },
  { no: 21, url: 'http://[::1]/', expected: 'REJECT', note: 'v6 loopback' },
  { no: 22, url: 'http://[0:0:0:0:0:0:0:1]/', expected: 'REJECT', note: 'expanded' },
  { no: 24, url: 'http://[::ffff:127.0.0.1]/', expected: 'REJECT', note: 'v4-mapped' },
  { no: 26, url: 'http://[0:0:0:0:0:ffff:127.0.0.1]/', expected: 'REJECT', note: 'v4-mapped expanded' },
  {
    no: 27,
    url: 'http://[::127.0.0.1]/',
    expected: 'REJECT',
    note: 'v4-compatible ::/96 (a v4-only net.BlockList misses it)'
  },
  {
    no: 29,
    url: 'http://[64:ff9b::7f00:1]/',
    expected: 'REJECT',
    note: 'NAT64 well-known prefix (BlockList misses it)'
  },
  { no: 31, url: 'http://[2002:7f00:1::]/', expected: 'REJECT', note: '6to4 (BlockList misses it)' },
  { no: 32, url: 'http://[2001:0:4136:e378:8000:63bf:3fff:fdd2]/', expected: 'REJECT', note: 'Teredo' },
  { no: 34, url: 'http://10.0.0.1/', expected: 'REJECT-UNLOCKABLE', note: 'RFC 1918' },
  { no: 36, url: 'http://172.31.255.255/', expected: 'REJECT-UNLOCKABLE', note: 'edge inside' },
  { no: 37, url: 'http://172.32.0.1/', expected: 'ALLOW', note: 'edge outside: must NOT be blocked' },
  { no: 39, url: 'http://100.64.0.1/', expected: 'REJECT-UNLOCKABLE', note: 'CGNAT' },
  { no: 41, url: 'http://100.128.0.1/', expected: 'ALLOW', note: 'edge outside CGNAT' },
  { no: 42, url: 'http://198.18.0.1/', expected: 'REJECT-UNLOCKABLE', note: 'benchmarking' },
  { no: 44, url: 'http://198.51.100.1/', expected: 'REJECT-UNLOCKABLE', note: 'TEST-NET-2' },
  { no: 46, url: 'http://192.88.99.1/', expected: 'REJECT-UNLOCKABLE', note: '6to4 relay' },
  {
    no: 47,
    url: 'http://224.0.0.1/',
    expected: 'REJECT',
    note: 'multicast (Svix is_allowed, as read, has no v4 multicast test)'
  },
  { no: 49, url: 'http://255.255.255.255/', expected: 'REJECT', note: 'broadcast' },
  { no: 51, url: 'http://[fd12:3456::1]/', expected: 'REJECT-UNLOCKABLE', note: 'ULA' },
  { no: 52, url: 'http://[fe80::1]/', expected: 'REJECT', note: 'link-local' },
  { no: 54, url: 'http://[fec0::1]/', expected: 'REJECT-UNLOCKABLE', note: 'site-local (deprecated)' },
  { no: 56, url: 'http://[2001:db8::1]/', expected: 'REJECT-UNLOCKABLE', note: 'documentation' },
  { no: 57, url: 'http://[100::1]/', expected: 'REJECT-UNLOCKABLE', note: 'discard' },
  { no: 59, url: 'http://169.254.169.254/latest/meta-data/', expected: 'REJECT', note: 'AWS/GCP/Azure IMDS' },
  { no: 61, url: 'http://0xA9FEA9FE/', expected: 'REJECT', note: 'hex IMDS' },
  { no: 62, url: 'http://0251.0376.0251.0376/', expected: 'REJECT', note: 'octal IMDS' },
  { no: 64, url: 'http://169.16689662/', expected: 'REJECT', note: '3-byte tail' },
  { no: 66, url: 'http://[64:ff9b::a9fe:a9fe]/', expected: 'REJECT', note: 'NAT64 IMDS' },
  { no: 67, url: 'http://[2002:a9fe:a9fe::1]/', expected: 'REJECT', note: '6to4 IMDS' },
  { no: 69, url: 'http://169.254.170.2/v2/credentials/', expected: 'REJECT', note: 'ECS task credentials' },
  { no: 71, url: 'http://192.0.0.192/', expected: 'REJECT', note: 'Oracle metadata' },
  {
    no: 72,
    url: 'http://168.63.129.16/',
    expected: 'REJECT',
    note: 'Azure wire server: PUBLIC range, needs its own entry'
  },
  { no: 74, url: 'http://7147006462/', expected: 'REJECT', note: 'overflow decimal' },
  { no: 76, url: 'http://45080379393/', expected: 'REJECT', note: 'overflow decimal' },
  { no: 77, url: 'http://metadata.google.internal/', expected: 'REJECT', note: '*.internal' },
  {
    no: 79,
    url: 'http://kubernetes.default.svc/',
    expected: 'REJECT-UNLOCKABLE',
    note: 'cluster name: allow only by explicit host entry'
  },
  { no: 81, url: 'http://LOCALHOST/', expected: 'REJECT', note: 'case' },
  { no: 82, url: 'http://localhost./', expected: 'REJECT', note: 'trailing dot: strip before the name test' },
  { no: 84, url: 'http://printer.local/', expected: 'REJECT-UNLOCKABLE', note: 'mDNS' },
  { no: 86, url: 'http://localho\ufb06/', expected: 'REJECT', note: 'ligature st' },
  { no: 87, url: 'http://\u00adlocalhost/', expected: 'REJECT', note: 'soft hyphen vanishes' },
  {
    no: 89,
    url: 'http://127.0.0.1.nip.io/',
    expected: 'BLOCK-AT-CONNECT',
    note: 'public name, private A record',
    answers: ['127.0.0.1']
  },
  {
    no: 91,
    url: 'http://localtest.me/',
    expected: 'BLOCK-AT-CONNECT',
    note: 'resolves to 127.0.0.1',
    answers: ['127.0.0.1']
  },
  {
    no: 92,
    url: 'http://rebind.test/',
    expected: 'ALLOW',
    note: 'one answer of two is private: the connect must use the other one',
    answers: ['93.184.216.34', '127.0.0.1']
  },
  {
    no: 94,
    url: 'http://v6only.test/',
    expected: 'BLOCK-AT-CONNECT',
    note: 'mapped answer',
    answers: ['::ffff:10.0.0.1']
  },
  {
    no: 96,
    url: 'http://nx.test/',
    expected: 'RETRY',
    note: 'DNS error is a retryable attempt failure, not a 5xx',
    answers: 'ENOTFOUND'
  },
  { no: 97, url: 'http://empty.test/', expected: 'RETRY', note: '', answers: [] },
  { no: 99, url: 'http://user:pass@example.com/', expected: 'REJECT', note: 'userinfo never accepted' },
  { no: 101, url: 'http://127.0.0.1%2f@example.com/', expected: 'REJECT', note: '' },
  { no: 102, url: 'http://127.0.0.1#@example.com/', expected: 'REJECT', note: 'fragment ends authority' },
  {
    no: 104,
    url: 'http://example.com:80\\@127.0.0.1/',
    expected: 'REJECT',
    note: 'WHATWG: backslash is a slash, host is example.com; other parsers say 127.0.0.1 => reject any backslash outright'
  },
  { no: 106, url: 'http:/127.0.0.1/', expected: 'REJECT', note: 'one slash' },
  { no: 107, url: 'http:127.0.0.1/', expected: 'REJECT', note: 'no slash' },
  { no: 109, url: '//127.0.0.1/', expected: 'REJECT', note: 'scheme-relative' },
  { no: 111, url: 'ht\ntp://127.0.0.1/', expected: 'REJECT', note: 'newline inside scheme is stripped' },
  {
    no: 112,
    url: 'http://1.1.1.1 &@2.2.2.2# @3.3.3.3/',
    expected: 'REJECT',
    note: 'three parsers, three hosts'
  },
  { no: 114, url: 'http://[::1/', expected: 'REJECT', note: 'unclosed bracket' },
  { no: 116, url: 'http://a..b/', expected: 'REJECT', note: 'WHATWG accepts empty labels => reject' },
  { no: 117, url: 'http://.example.com/', expected: 'REJECT', note: 'leading dot => reject' },
  { no: 119, url: 'file:///etc/passwd', expected: 'REJECT', note: '' },
  { no: 121, url: 'dict://127.0.0.1:6379/INFO', expected: 'REJECT', note: '' },
  { no: 122, url: 'ftp://example.com/', expected: 'REJECT', note: '' },
  { no: 124, url: 'unix:///var/run/docker.sock', expected: 'REJECT', note: '' },
  { no: 126, url: 'javascript:alert(1)', expected: 'REJECT', note: '' },
  { no: 127, url: 'data:text/plain,x', expected: 'REJECT', note: '' },
  { no: 129, url: 'jar:http://127.0.0.1!/', expected: 'REJECT', note: '' },
  { no: 131, url: 'http://example.com:65536/', expected: 'REJECT', note: 'port overflow' },
  { no: 132, url: 'http://example.com:22/', expected: 'REJECT', note: 'SSH' },
  { no: 134, url: 'http://example.com:6379/', expected: 'REJECT', note: 'Redis' },
  { no: 136, url: 'https://example.com:8443/hook', expected: 'ALLOW', note: 'must pass' },
  { no: 137, url: 'https://example.com/hook?x=1', expected: 'ALLOW', note: 'must pass' },
  { no: 139, url: 'https://xn--bcher-kva.example/', expected: 'ALLOW', note: 'punycode' },
  { no: 141, url: 'https://[2606:4700:4700::1111]/', expected: 'ALLOW', note: 'public v6 literal' },
  {
    no: 142,
    url: 'https://[::ffff:8.8.8.8]/',
    expected: 'ALLOW',
    note: 'mapped public: it is the IPv4 address'
  }
]
