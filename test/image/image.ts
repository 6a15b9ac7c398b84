// Builds the Dockerfile with buildah, and runs the image as Docker would: as its user, on a read-only root.
import { execFile, spawn, type ExecFileException } from 'node:child_process'
import { existsSync, mkdirSync } from 'node:fs'
import path from 'node:path'
import { promisify } from 'node:util'
import type { Test } from 'tap'
import { plainEnv, root } from '../package/installed.ts'
import { descendants, isAlive } from '../package/processes.ts'
import { folder } from '../support/service.ts'
import { baseTree } from './base.ts'

export type Run = (command: string, ...args: string[]) => Promise<string>

const builder = { BUILDAH_ISOLATION: 'chroot', STORAGE_DRIVER: 'vfs' }

/** Runs a command and returns its stdout. Throws with the whole output. */
export const run: Run = async (command, ...args) => {
  try {
    const env = plainEnv(builder)
    return (await promisify(execFile)(command, args, { cwd: root, env, maxBuffer: 1e8 })).stdout
  } catch (err) {
    const { message, stdout, stderr } = err as ExecFileException & { stdout: string; stderr: string }
    throw new Error(`${message}\n${stdout}\n${stderr}`, { cause: err })
  }
}

export interface Image {
  /** Its root file system. */
  tree: string
  user: string
  workdir: string
  env: string[]
  command: string[]
}

interface Config {
  User: string
  WorkingDir: string
  Env: string[]
  Cmd: string[]
}

/** Builds a replacement for node:24-slim, and the image of our Dockerfile on it. */
export async function buildImage(t: Test): Promise<Image> {
  const work = folder(t)
  const buildah = (...args: string[]): Promise<string> =>
    run('buildah', '--root', path.join(work, 'storage'), '--runroot', path.join(work, 'run'), ...args)
  t.teardown(() => buildah('umount', '--all').catch(() => ''))

  await baseTree(run, path.join(work, 'base'))
  const base = (await buildah('from', 'scratch')).trim()
  const mounted = (await buildah('mount', base)).trim()
  await run('cp', '-a', `${path.join(work, 'base')}/.`, mounted)
  await buildah('config', '--env', 'PATH=/usr/local/bin:/usr/bin:/bin', base)
  await buildah('commit', '--rm', base, 'docker.io/library/node:24-slim')

  // The build uses npm's cache of this machine and fetches nothing twice.
  const cache = (await run('npm', 'config', 'get', 'cache')).trim().split('\n').at(-1) ?? ''
  const kept = existsSync(cache) ? ['--volume', `${cache}:/root/.npm`] : []
  const certificates = ['--volume', '/etc/ssl/certs:/etc/ssl/certs:ro']
  await buildah('build', '--pull=never', ...kept, ...certificates, '--tag', 'ackbox', root)
  const container = (await buildah('from', '--pull-never', 'localhost/ackbox')).trim()
  const inspected = JSON.parse(await buildah('inspect', '--type', 'image', 'localhost/ackbox')) as {
    OCIv1: { config: Config }
  }
  const { User, WorkingDir, Env, Cmd } = inspected.OCIv1.config
  const tree = (await buildah('mount', container)).trim()
  return { tree, user: User, workdir: WorkingDir, env: Env, command: Cmd }
}

export interface Container {
  /** Its output so far. */
  said(): string
  /** Sends SIGTERM to the process of the image, as `docker stop` does, and returns its exit code. */
  stop(): Promise<number | null>
  ended: Promise<number | null>
}

// Makes a mount namespace with the tree read-only, an empty /tmp, /dev and /proc, and the handlers where compose mounts
// them. Then the command runs in the image's folder, as the image's user, without capabilities.
const script = `set -e
mount --bind "$TREE" "$TREE"
mount -o remount,ro,bind "$TREE"
mount -t tmpfs tmpfs "$TREE/tmp"
mount --rbind /dev "$TREE/dev"
mount -t proc proc "$TREE/proc"
mount --bind -o ro "$HANDLERS" "$TREE/app/handlers"
exec chroot --userspec="$RUN_AS:$RUN_AS" "$TREE" env -i "$@"`

/** Starts a command in the image. `env` overrides the settings of the image. */
export function runIn(
  t: Test,
  image: Image,
  command: string[],
  env: Record<string, string>,
  handlers: string
): Container {
  // The place where compose mounts them. A container runtime also makes it before the root becomes read-only.
  mkdirSync(path.join(image.tree, 'app/handlers'), { recursive: true })
  const settings = [...image.env, ...Object.entries(env).map(([name, value]) => `${name}=${value}`)]
  const child = spawn(
    'unshare',
    ['--mount', '--pid', '--fork', '--kill-child', 'sh', '-c', script, 'sh', ...settings]
      .concat('sh', '-c', `cd ${image.workdir} && exec "$@"`, 'sh')
      .concat(command),
    {
      env: plainEnv({ TREE: image.tree, RUN_AS: image.user, HANDLERS: handlers }),
      stdio: ['ignore', 'pipe', 'pipe']
    }
  )
  let output = ''
  for (const stream of [child.stdout, child.stderr])
    stream.on('data', (chunk: Buffer) => {
      output += chunk.toString()
    })
  const ended = new Promise<number | null>(done => child.once('close', code => done(code)))
  const pid = child.pid ?? 0
  t.teardown(async () => {
    if (isAlive(pid)) child.kill('SIGKILL')
    await ended
  })
  return {
    said: () => output,
    ended,
    stop() {
      const [first] = descendants(pid)
      if (first !== undefined) process.kill(first, 'SIGTERM')
      return ended
    }
  }
}
