// The whole load, derived from the seed: when each task is posted, and the later calls about it.
import { fateOf } from './behaviour.ts'
import type { PlannedTask } from './history.ts'
import { chance, weighted, type Chance } from './random.ts'

/** Poisson: the gaps are exponential, so arrivals come in bursts and lulls as real ones do. */
export function planLoad(seed: number, { seconds, rate }: { seconds: number; rate: number }): PlannedTask[] {
  const by = chance(seed, 'load')
  const tasks: PlannedTask[] = []
  for (let atMs = gapOf(by, rate); atMs < seconds * 1_000; atMs += gapOf(by, rate))
    tasks.push(planTask(seed, by, tasks.length, Math.floor(atMs)))
  return tasks
}

const gapOf = (by: Chance, rate: number): number => (-Math.log(1 - by.next()) * 1_000) / rate

function planTask(seed: number, by: Chance, n: number, atMs: number): PlannedTask {
  const taskNo = `chaos-${seed}-${n}`
  if (by.hit(0.02)) return { atMs, taskNo, isWrong: true, ...wrong(by, n) }
  const fate = fateOf(seed, taskNo)
  const messageCode = weighted(by, { 'chaos.plain': 45, 'chaos.receipt': 35, 'chaos.pair': 20 })
  const more = weighted(by, { nothing: 58, again: 14, conflict: 12, remove: 6, twice: 10 })
  const start = weighted(by, { now: 82, at: 10, delay: 8 })
  return {
    atMs,
    taskNo,
    messageCode,
    body: bodyText(by, n),
    ...(start === 'at' && { startInMs: by.whole(500, 7_000) }),
    ...(start === 'delay' && { delayMs: by.whole(200, 5_000) }),
    // `true` is refused if no downstream of the code takes receipts.
    ...(by.hit(0.1) && { needCallback: by.hit(0.5) && messageCode !== 'chaos.plain' }),
    ...(fate === 'doomed' ? { retryTimes: by.whole(1, 3) } : by.hit(0.1) && { retryTimes: by.whole(20, 40) }),
    ...(more === 'again' && { againAfterMs: by.whole(0, 4_000) }),
    // At the same moment: two equal POSTs race.
    ...(more === 'twice' && { againAfterMs: 0 }),
    ...(more === 'conflict' && { conflictAfterMs: by.whole(0, 3_000) }),
    ...(more === 'remove' && { removeAfterMs: by.whole(0, 3_000) }),
    ...(fate === 'doomed' && by.hit(0.5) && { redeliverAfterMs: by.whole(4_000, 12_000) })
  }
}

function wrong(by: Chance, n: number): Pick<PlannedTask, 'messageCode' | 'body'> {
  return by.hit(0.5)
    ? { messageCode: 'chaos.nobody', body: `{"n":${n}}` }
    : { messageCode: 'chaos.plain', body: `{"n":"${n} is no number"}` }
}

/** Texts that change when a program parses and prints them. */
function bodyText(by: Chance, n: number): string {
  return by.pick([
    `{"n":${n}}`,
    `{"n":${n},"b":1,"a":2,"10":"ten","9":"nine"}`,
    `{ "n" : ${n} ,\t"spaced" :  [ 1 , 2,3 ] }`,
    `{"n":${n},"price":10.50,"one":1.0,"tiny":1E-7,"large":1e2,"zero":-0}`,
    `{"n":${n},"escaped":"\\u00e9\\u4f60\\/\\u0041","plain":"é你/A","pair":"\\ud83d\\ude00"}`,
    `{"n":${n},"big":9007199254740991,"huge":1e300,"nested":{"z":{"y":[{}, [], ""]},"a":null}}`,
    `{"note":"${'lorem ipsum '.repeat(by.whole(1, 200))}","n":${n}}`,
    `{"n":${n},"html":"<a href=\\"x\\">&amp;</a>","line":"a\\nb\\u2028c"}`
  ])
}
