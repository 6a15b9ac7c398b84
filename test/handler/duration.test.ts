import t from 'tap'
import { durationMs, durationText } from '../../src/handler/define.ts'
import { nearest } from '../../src/runtime/nearest.ts'

t.test('a duration is a number with its unit, or milliseconds', async t => {
  const table: [unknown, number | undefined][] = [
    ['500ms', 500],
    ['1.5s', 1_500],
    ['10s', 10_000],
    ['2m', 120_000],
    ['1h', 3_600_000],
    ['1d', 86_400_000],
    [250, 250],
    [0, 0],
    [0.4, 0],
    ['10', undefined],
    ['10 s', undefined],
    ['s', undefined],
    ['-1s', undefined],
    ['1e3s', undefined],
    ['10S', undefined],
    ['1s\n', undefined],
    [-1, undefined],
    [Number.NaN, undefined],
    [Infinity, undefined],
    [null, undefined],
    [[], undefined]
  ]
  for (const [value, ms] of table) t.equal(durationMs(value), ms, JSON.stringify(value))
})

t.test('a duration is shown in the largest unit that divides it', async t => {
  const table: [number, string][] = [
    [0, '0ms'],
    [500, '500ms'],
    [1_500, '1500ms'],
    [90_000, '90s'],
    [60_000, '1m'],
    [86_400_000, '1d']
  ]
  for (const [ms, text] of table) t.equal(durationText(ms), text)
})

t.test('a misspelt name finds the one that was meant, and a strange one finds none', async t => {
  const known = ['concurrency', 'perSecond', 'timeout']
  for (const [name, meant] of [
    ['concurency', 'concurrency'],
    ['persecond', 'perSecond'],
    ['tiemout', 'timeout'],
    ['timeouts', 'timeout'],
    ['retries', undefined],
    ['', undefined]
  ] as const)
    t.equal(nearest(name, known), meant, name)
  t.equal(nearest('x', ['y']), undefined, 'one letter is not a misspelling of another')
})
