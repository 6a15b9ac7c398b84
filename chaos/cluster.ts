// All parts of a run, in its own folder: two processes of each role, PostgreSQL, Redis, the sink, a balancer.
import { execFile } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { chmodSync, mkdtempSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { freePort } from '../src/embedded/port.ts'
import { balance } from './balancer.ts'
import { aheadBy } from './clock.ts'
import type { Exit } from './history.ts'
import { servePair, serveSentinels } from './groups.ts'
import { member, type Member } from './member.ts'
import { copyService, type Mutant } from './mutant.ts'
import { buildIn, otherBuild } from './other-build.ts'
import { roles, type FaultName, type Queue } from './nemesis-plan.ts'
import { removeFolder } from './remove-folder.ts'
import { servePostgres, serveRedis, type PostgresServer, type RedisServer } from './servers.ts'
import { leaseMarginMs, secretVariable, sweepMs } from './terms.ts'
import { callWitness, type Witness } from './witness.ts'

export interface Cluster {
  folder: string
  /** Of the balancer. */
  url: string
  /** The headers of a caller. */
  headers: Record<string, string>
  members: Member[]
  isMixed: boolean
  deploy(stage: Stage): void
  /** Resolves when every process reports that it is ready, and the balancer has seen that of its backends. */
  ready(): Promise<void>
  postgres: PostgresServer
  redis: RedisServer | undefined
  witness: Witness
  exits: Exit[]
  /** Secrets by name. None may appear in a log or an answer. */
  canaries: Record<string, string>
  /** Removes all parts of the run, even if it broke off in the middle. */
  close(): Promise<void>
}

export interface ClusterOptions {
  seed: number
  queue: Queue
  /** The servers that it needs are started. */
  fault?: FaultName
  /** Where package.json is. */
  root: string
  mutant?: Mutant
  /** Seconds that the hosts of workers and dispatchers are ahead of all others. */
  aheadSeconds: number
  /** Each process has all roles, regardless of its name. It starts the tasks that it accepts. */
  together: boolean
  keep: boolean
  /** A build of another version, or its commit: the second process of each role runs it. */
  mixed?: string
}

/** Which build the processes run from their next start on: half of them the other one, all this one, or all the other one. */
export type Stage = 'mixed' | 'new' | 'old'

export async function startCluster(options: ClusterOptions): Promise<Cluster> {
  const folder = mkdtempSync(join(tmpdir(), 'ackbox-chaos-'))
  chmodSync(folder, 0o755) // as root, PostgreSQL runs as another user
  const closers: (() => Promise<unknown>)[] = []
  if (options.keep) console.error(`chaos: kept in ${folder}`)
  else closers.push(() => removeFolder(folder))
  const close = async () => {
    for (const closer of closers.splice(0).reverse())
      await closer().catch((err: Error) => console.error(`chaos: ${err.message}`))
  }
  try {
    return await build(options, folder, closers, close)
  } catch (err) {
    await close()
    throw err
  }
}

function slay(pid: number): void {
  try {
    if (pid > 0) process.kill(pid, 'SIGKILL')
  } catch {} // it is gone already
}

async function build(
  { seed, queue, fault, root, mutant, aheadSeconds, together, mixed }: ClusterOptions,
  folder: string,
  closers: (() => Promise<unknown>)[],
  close: () => Promise<void>
): Promise<Cluster> {
  const dist = copyService(root, folder, mutant)
  const signing = `whsec_${randomBytes(32).toString('base64')}`
  const secret = randomBytes(32).toString('base64url')
  const postgres = await (fault === 'failover' ? servePair : servePostgres)(folder)
  closers.push(postgres.close)
  const redis =
    queue === 'redis' ? await (fault === 'sentinel' ? serveSentinels : serveRedis)(folder) : undefined
  if (redis) closers.push(redis.close)
  const witness = await callWitness(seed, signing)
  closers.push(witness.close)

  const ports = await Promise.all(roles.flatMap(() => [freePort(), freePort()]))
  const apis = ports.slice(0, 2).map(port => `http://127.0.0.1:${port}`)
  const balancer = await balance(apis)
  closers.push(balancer.close)
  const env: Record<string, string> = {
    DATABASE_URL: postgres.url,
    ...(redis && { REDIS_URL: redis.url }),
    SECRET: secret,
    [secretVariable]: signing,
    CHAOS_SINK: witness.url,
    CHAOS_CHECK: witness.url,
    HANDLERS_DIR: join(dist, 'chaos/handlers'),
    EGRESS_ALLOW: new URL(witness.url).host,
    PUBLIC_URL: balancer.url,
    ALARM_WEBHOOK_URL: `${witness.url}/alarm`,
    LEASE_MARGIN_MS: `${leaseMarginMs}`,
    SWEEP_MS: `${sweepMs}`,
    AUTH: 'on',
    LOG_LEVEL: 'debug'
  }
  // Not synchronous: the proxy to PostgreSQL runs in this process.
  const run = (...args: string[]) =>
    promisify(execFile)(process.execPath, [join(dist, 'src/cli/ackbox.js'), ...args], {
      env: { PATH: process.env['PATH'], HOME: process.env['HOME'], ...env },
      cwd: folder
    })
  await run('migrate')
  const scopes = 'tasks:write,tasks:read,ops:read,ops:write'
  // stdout holds only the key.
  const key = (await run('key', 'create', 'chaos', '--scopes', scopes)).stdout.trim()

  const current = buildIn(dist)
  const other =
    mixed === undefined ? undefined : await otherBuild(root, mixed, line => console.error(`chaos: ${line}`))
  let stage: Stage = 'mixed'
  const exits: Exit[] = []
  // For the second Ctrl-C, or the death of the run: processes in their own groups would outlive it.
  const endAll = () => {
    for (const pid of [...members.map(one => one.pid()), ...(redis?.pids() ?? []), ...postgres.pids()])
      slay(pid)
  }
  process.once('exit', endAll)
  closers.push(async () => void process.off('exit', endAll))
  const members = roles.flatMap((role, at) =>
    [1, 2].map(nth =>
      member({
        name: `${role}-${nth}`,
        role,
        roles: together ? roles.join(',') : role,
        port: ports[at * 2 + nth - 1] ?? 0,
        build: () => (other && (stage === 'old' || (stage === 'mixed' && nth === 2)) ? other : current),
        env: { ...env, ...(role !== 'api' && aheadSeconds !== 0 && aheadBy(aheadSeconds)) },
        folder,
        onExit: exit => exits.push(exit)
      })
    )
  )
  closers.push(() => Promise.all(members.map(one => one.kill())))
  await Promise.all(members.map(one => one.start()))
  const canaries = {
    SECRET: secret,
    'signing secret': signing.slice(6),
    'API key': key,
    'password of PostgreSQL': postgres.password
  }
  return {
    folder,
    url: balancer.url,
    headers: { authorization: `Bearer ${key}` },
    members,
    isMixed: other !== undefined,
    deploy(to) {
      stage = to
    },
    ready: async () => {
      await Promise.all(members.map(one => one.start().then(() => balancer.sees(one.url))))
    },
    postgres,
    redis,
    witness,
    exits,
    canaries,
    close
  }
}
