// A hostile request may block the event loop for 50 ms at most. The tests share their processors, so the shortest of several
// runs counts. Four times the bound still detects a reader that looks at each byte too often.
import t from 'tap'
import { readBatch } from '../../src/json/reader.ts'

const most = 8 * 1024 * 1024
const filled = (unit: string, bytes: number): string => unit.repeat(Math.floor(bytes / unit.length))
const task = (body: string): string => `{"messageCode":"a","messageBody":${body}}`
const list = (elements: string[]): string => `{"tasks":[${elements.join()}]}`

const hostile: Record<string, () => string> = {
  'empty arrays': () => list([filled('[],', most - 40) + '[]']),
  numbers: () => list([filled('1,', most - 40) + '1']),
  'white space': () => list([' '.repeat(most - 40)]),
  'one string': () => list([task(`"${'a'.repeat(most - 100)}"`)]),
  escapes: () => list([task(`"${filled('\\u0041', most - 100)}"`)]),
  'letters of two bytes': () => list([task(`"${filled('é', most / 2 - 100)}"`)]),
  'bodies of nothing but brackets': () =>
    list(Array.from({ length: 31 }, () => task(`[${filled('[],', 262_000)}[]]`))),
  'bodies of many members': () => {
    const members = Array.from({ length: 1_900 }, (_, i) => `"k${i}":1`).join()
    return list(Array.from({ length: 400 }, () => task(`{${members}}`)))
  },
  'a task of many members': () =>
    `{"tasks":[{${Array.from({ length: 600_000 }, (_, i) => `"${i}":1`).join()}}]}`
}

for (const [name, text] of Object.entries(hostile)) {
  t.test(`8 MiB of ${name} hold up nobody`, async t => {
    const bytes = Buffer.from(text())
    t.ok(bytes.length > 6_000_000)
    let shortest = Infinity
    for (let run = 0; run < 5 && shortest > 50; run++) shortest = Math.min(shortest, await longestHold(bytes))
    t.ok(shortest <= 200, `${shortest.toFixed(1)} ms`)
  })
}

/** The most CPU time, ms, between two turns of the event loop during the read. A wait for the processor does not count. */
async function longestHold(bytes: Uint8Array): Promise<number> {
  let longest = 0
  let since = process.cpuUsage()
  const look = (): void => {
    const { user, system } = process.cpuUsage(since)
    longest = Math.max(longest, (user + system) / 1_000)
  }
  const turn = async (): Promise<void> => {
    look()
    await new Promise(resolve => setImmediate(resolve))
    since = process.cpuUsage()
  }
  await readBatch(bytes, turn).catch(() => {}) // a refusal is measured like a read
  look()
  return longest
}
