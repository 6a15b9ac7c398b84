// The HTML report: one file without external parts, so that it can be kept with a ticket for years.
import type { History } from './history.ts'
import type { Verdict } from './judge.ts'
import { charges, type Finding } from './judge/finding.ts'
import { escaped } from './report/escaped.ts'
import { endOf, storyOf } from './report/story.ts'
import { timeline } from './report/timeline.ts'

/** The page shows this many findings of each charge. The verdict has all of them. */
const shownPerCharge = 10

const style = `
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 72rem; padding: 0 1rem; color: #1c2430; background: #fff }
h1 { font-size: 1.4rem } h2 { font-size: 1.1rem; margin-top: 2rem } code, pre { font: 13px/1.45 ui-monospace, monospace }
.green { color: #177245 } .red { color: #b3261e } .inconclusive { color: #8a5a00 }
table { border-collapse: collapse } td, th { padding: .15rem .8rem .15rem 0; text-align: left; vertical-align: top }
td.n { text-align: right; font-variant-numeric: tabular-nums } details { margin: .4rem 0 } summary { cursor: pointer }
svg { width: 100%; height: auto } .lane { font-size: 11px; text-anchor: end; fill: #51606f } .title { font-size: 12px; fill: #1c2430 }
.axis { stroke: #c3ccd6 } .tick { stroke: #eef1f4 } .tickText { font-size: 10px; fill: #51606f; text-anchor: middle }
.fault { fill: #8893a0 } .kill { fill: #b3261e } .stop { fill: #e08e0b } .redis { fill: #7b4fbf } .postgres { fill: #2f6fde } .sink { fill: #1f9d55 }
@media (prefers-color-scheme: dark) { body { background: #14181d; color: #dfe5ec } .title { fill: #dfe5ec } .lane, .tickText { fill: #9aa7b5 }
.tick { stroke: #232a32 } .axis { stroke: #3a4450 } .green { color: #5fd39a } .red { color: #ff8a80 } .inconclusive { color: #f2c14e } }`

export function report(history: History, verdict: Verdict): string {
  const { seed, tasks, accepted, arrivals, duplicates } = verdict
  return `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>chaos ${seed}: ${verdict.verdict}</title>
<style>${style}</style>
<h1>Seed ${seed}: <span class="${verdict.verdict}">${verdict.verdict}</span></h1>
<p>${tasks} tasks posted, ${accepted} accepted, ${arrivals} arrivals, ${duplicates.extra} of them not the first.
Began ${new Date(history.startedAt).toISOString()}; the load ended after ${Math.round((history.loadEndedAt - history.startedAt) / 1_000)} s.</p>
${verdict.inconclusive.length > 0 ? `<p class="inconclusive">In doubt: ${escaped(verdict.inconclusive.join('; '))}.</p>` : ''}
${timeline(history)}
<h2>Findings</h2>
${verdict.findings.length === 0 ? '<p>None.</p>' : findings(history, verdict)}
<h2>States at the end</h2>
${table(verdict.statuses)}
<h2>Causes of repeated arrivals</h2>
${table(duplicates.causes)}
<h2>Faults</h2>
<table>${history.faults.map(fault => `<tr><td class="n">${seconds(history, fault.from)}</td><td>${escaped(fault.action)}</td><td>${escaped(fault.target)}</td><td class="n">${((fault.to - fault.from) / 1_000).toFixed(1)} s</td></tr>`).join('')}</table>
</html>
`
}

const seconds = ({ startedAt }: History, at: number): string => `${((at - startedAt) / 1_000).toFixed(3)} s`

const table = (counts: Record<string, number>): string =>
  `<table>${Object.entries(counts)
    .map(([name, count]) => `<tr><td>${escaped(name)}</td><td class="n">${count}</td></tr>`)
    .join('')}</table>`

function findings(history: History, { findings: all, counts }: Verdict): string {
  return Object.entries(counts)
    .map(([charge, count]) => {
      const shown = all.filter(finding => finding.charge === charge).slice(0, shownPerCharge)
      const sentence = charges[charge as keyof typeof charges]
      return `<h3 class="red">${escaped(charge)} × ${count}</h3><p>${escaped(sentence)}</p>${shown.map(one => details(history, one)).join('')}`
    })
    .join('\n')
}

function details(history: History, { taskNo, downstream, detail }: Finding): string {
  if (taskNo === undefined) return `<p>${escaped(detail)}</p>`
  const events = storyOf(history, taskNo).map(
    ({ at, text }) => `<tr><td class="n">${seconds(history, at)}</td><td>${escaped(text)}</td></tr>`
  )
  const planned = history.planned.find(one => one.taskNo === taskNo)
  return `<details><summary><code>${escaped(taskNo)}</code> ${escaped(downstream ?? '')}: ${escaped(detail)}</summary>
<p>${escaped(endOf(history, taskNo))}</p><pre>${escaped(JSON.stringify({ ...planned, body: planned?.body.slice(0, 200) }))}</pre>
<table>${events.join('')}</table></details>`
}
