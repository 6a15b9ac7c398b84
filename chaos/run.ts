// One run: build, load with faults, heal, drain, read back. It returns the history. The judge is separate.
import { join } from 'node:path'
import { startCluster, type Cluster, type ClusterOptions } from './cluster.ts'
import { ask } from './client.ts'
import { differenceOf, type Difference } from './clock.ts'
import type { AlarmMessage, History, InsideFinding } from './history.ts'
import { lookInside } from './inside.ts'
import { leaksIn, loggedAt, textOf } from './leaks.ts'
import { planKeys } from './keys-plan.ts'
import { planLoad } from './load-plan.ts'
import { startLoad } from './load.ts'
import { startCpuProbe } from './cpu-probe.ts'
import { actionsOf, planNemesis } from './nemesis-plan.ts'
import { rollBack, startNemesis } from './nemesis.ts'
import type { Profile } from './options.ts'
import { drained, readAlarms, readTasks, type Reader } from './read.ts'
import { hurriedMs } from './settled.ts'

export interface RunOptions extends ClusterOptions {
  profile: Profile
  /** Aborts at Ctrl-C. The tasks so far are then read back and judged. */
  stop: AbortSignal
  say: (now: Progress) => void
}

export interface Progress {
  phase: string
  seconds: number
  posted: number
  answered: number
  arrived: number
  nemesis: string
}

export async function run(options: RunOptions): Promise<History> {
  const began = performance.now()
  const progress: Progress = {
    phase: 'starting',
    seconds: 0,
    posted: 0,
    answered: 0,
    arrived: 0,
    nemesis: ''
  }
  const say = () => options.say({ ...progress, seconds: (performance.now() - began) / 1_000 })
  say()
  const cluster = await startCluster(options)
  try {
    return await play(options, cluster, progress, say)
  } finally {
    await cluster.close()
  }
}

async function play(
  { seed, profile, queue, stop, aheadSeconds }: RunOptions,
  cluster: Cluster,
  progress: Progress,
  say: () => void
): Promise<History> {
  const { url, headers, witness, postgres } = cluster
  const planned = profile.perKey ? planKeys(seed, profile, profile.perKey) : planLoad(seed, profile)
  const plan = planNemesis(seed, { ...profile, queue })
  const clockAheadMs = await clockAhead(cluster)
  const over = new AbortController()
  const insideFindings: InsideFinding[] = []
  const looking = lookInside(postgres.sql, over.signal, insideFindings)
  looking.catch(() => {}) // awaited at the end
  const cpuProbe = startCpuProbe()
  const startedAt = Date.now()

  progress.phase = 'load'
  const nemesis = startNemesis(cluster, plan, stop)
  // A restart that comes after the load would show nothing.
  const load = startLoad({ url, headers, planned, mend: witness.mend, stop, due: nemesis.reached })
  const progressTimer = setInterval(() => {
    progress.posted = load.calls.filter(({ kind }) => kind === 'first').length
    progress.answered = load.calls.filter(({ status }) => status !== 0).length
    progress.nemesis = nemesis.doing()
    void witness.counts().then(
      ({ tasks }) => {
        progress.arrived = tasks
      },
      () => {} // the next tick reads the counts again
    )
    say()
  }, 2_000)
  try {
    await Promise.all([load.posted, nemesis.done])
    const loadEndedAt = Date.now()

    progress.phase = 'healing'
    for (const member of cluster.members) {
      member.thaw()
      await member.start()
    }
    if (cluster.isMixed) await rollBack(cluster, nemesis.faults)
    const patience = stop.aborted ? hurriedMs : profile.drainMs
    // A POST that is answered during the reading would be missing in what was read.
    await load.answered(patience)

    progress.phase = 'draining'
    // Only ends a run that hangs. Each progress restarts it, so no verdict depends on its length.
    const giveUp = setTimeout(() => over.abort(), patience + 30_000)
    const arrived = async () => (await witness.counts()).arrivals
    await drained({ url, headers, signal: over.signal }, { ms: patience, stop }, arrived, left => {
      progress.nemesis = `${left} tasks under way`
      giveUp.refresh()
    })

    progress.phase = 'reading'
    clearTimeout(giveUp)
    // Tasks that have not ended are read too. Each may need several requests.
    const unread = new AbortController()
    const giveUpReading = setTimeout(() => unread.abort(), patience + 30_000)
    const reader: Reader = { url, headers, signal: unread.signal }
    const back = await readTasks(reader, planned.filter(isPosted(load.calls)), () => giveUpReading.refresh())
    const alarms = await readAlarms(reader)
    const metrics = await Promise.all(cluster.members.map(one => ask(`${one.url}/metrics`, { headers })))
    clearTimeout(giveUpReading)
    over.abort()
    const insideSamples = await looking

    progress.phase = 'ending'
    await Promise.all(cluster.members.map(one => one.end()))
    const { arrivals, receipts, tokens, alarms: messages } = await witness.testimony()
    const texts: Record<string, string> = {
      'GET /tasks': back.texts.join('\n'),
      '/metrics': metrics.map(({ text }) => text).join('\n'),
      'alarm messages': messages.map(({ body }) => body).join('\n')
    }
    for (const { name } of cluster.members) texts[`${name}.log`] = textOf(join(cluster.folder, `${name}.log`))
    return {
      seed,
      startedAt,
      loadEndedAt,
      clockAheadMs,
      planned,
      calls: load.calls,
      arrivals,
      receipts,
      tasks: back.tasks,
      alarms,
      messages: messages.map(({ at, status, body }) => ({
        ...(JSON.parse(body) as Omit<AlarmMessage, 'at' | 'status'>),
        at,
        status
      })),
      faults: nemesis.faults,
      exits: cluster.exits,
      cpuSamples: cpuProbe.samples,
      leaks: leaksIn(texts, cluster.canaries, tokens),
      inside: insideFindings,
      insideSamples,
      calledDead: cluster.members.flatMap(({ name, role }) =>
        loggedAt([texts[`${name}.log`] ?? ''], 'node\\.called_dead').map(at => ({
          process: name,
          at: role === 'api' ? at : at - aheadSeconds * 1_000
        }))
      ),
      wanted: actionsOf(plan),
      interrupted: stop.aborted
    }
  } finally {
    clearInterval(progressTimer)
    load.end()
    over.abort()
    await cpuProbe.stop()
  }
}

const isPosted = (calls: readonly { taskNo: string }[]) => {
  const all = new Set(calls.map(({ taskNo }) => taskNo))
  return ({ taskNo }: { taskNo: string }) => all.has(taskNo)
}

/** All processes run on one host, so this is 0 except for the round trip. */
async function clockAhead({ postgres }: Cluster): Promise<number> {
  const samples: Difference[] = []
  for (let turn = 0; turn < 20; turn++) {
    const before = Date.now()
    const [row] = await postgres.sql<[{ ms: number }]>`
      select extract(epoch from clock_timestamp())::float8 * 1000 as ms`
    const withinMs = (Date.now() - before) / 2
    samples.push({ aheadMs: row.ms - before - withinMs, withinMs })
  }
  return differenceOf(samples)
}
