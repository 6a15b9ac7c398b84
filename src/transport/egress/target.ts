/** Ports that never speak HTTP: the fetch standard's (https://fetch.spec.whatwg.org/#port-blocking), and common stores. */
export const badPorts: ReadonlySet<number> = new Set([
  0, 1, 7, 9, 11, 13, 15, 17, 19, 20, 21, 22, 23, 25, 37, 42, 43, 53, 69, 77, 79, 87, 95, 101, 102, 103, 104,
  109, 110, 111, 113, 115, 117, 119, 123, 135, 137, 139, 143, 161, 179, 389, 427, 465, 512, 513, 514, 515,
  526, 530, 531, 532, 540, 548, 554, 556, 563, 587, 601, 636, 989, 990, 993, 995, 1719, 1720, 1723, 2049,
  3659, 4045, 4190, 5060, 5061, 6000, 6566, 6665, 6666, 6667, 6668, 6669, 6679, 6697, 10080, 1433, 1521, 2375,
  2376, 2379, 2380, 3306, 5432, 6379, 9200, 9300, 10250, 10255, 11211, 27017, 27018, 27019
])

/** Names that mean something inside a network only. `internal` holds the metadata services of the clouds. */
const insideOnly = [
  'localhost',
  'local',
  'internal',
  'svc',
  'localdomain',
  'lan',
  'intranet',
  'corp',
  'home',
  'private',
  'home.arpa'
]

export interface NameProblem {
  /** No name at all: no setting allows it. */
  malformed: boolean
  what: string
}

/** What is wrong with a host name, after the URL parser and without its last dot. */
export function nameProblem(host: string): NameProblem | undefined {
  const labels = host.split('.')
  if (host.length > 253 || labels.some(label => label.length < 1 || label.length > 63)) {
    return { malformed: true, what: 'not a host name' }
  }
  if (labels.length === 1 || insideOnly.some(name => host === name || host.endsWith(`.${name}`))) {
    return { malformed: false, what: 'a name inside a network' }
  }
  return undefined
}
