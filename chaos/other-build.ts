// The build of another version, for processes that run beside those of this one.
import { execFile } from 'node:child_process'
import { existsSync, mkdtempSync, renameSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { promisify } from 'node:util'

const run = promisify(execFile)

/** What runs a process: the compiled main.js, and the folder of compiled handlers. */
export interface Build {
  main: string
  handlers: string
}

export const buildIn = (dist: string): Build => ({
  main: join(dist, 'src/main.js'),
  handlers: join(dist, 'chaos/handlers')
})

/** See otherClone. */
export const otherBuild = async (
  root: string,
  wanted: string,
  say?: (line: string) => void
): Promise<Build> => buildIn(join(await otherClone(root, wanted, say), 'dist'))

/**
 * This folder of a clone with a build, or that of a commit of this clone, which is packed, installed and compiled once, into a folder of the
 * system's temporary files. Rejects if there is none.
 */
export async function otherClone(
  root: string,
  wanted: string,
  say: (line: string) => void = () => {}
): Promise<string> {
  if (existsSync(join(wanted, 'dist/src/main.js'))) return resolve(wanted)
  const inRoot = { cwd: root, maxBuffer: 2 ** 24 }
  const commit = await run('git', ['rev-parse', '--verify', '--quiet', `${wanted}^{commit}`], inRoot).then(
    ({ stdout }) => stdout.trim(),
    () => {
      throw new Error(
        `${wanted} is neither a folder with a build (dist/src/main.js) nor a commit of this clone`
      )
    }
  )
  const folder = join(tmpdir(), `ackbox-build-${commit}`)
  if (!existsSync(join(folder, 'dist/src/main.js'))) {
    say(`compiles ${commit}`)
    const made = mkdtempSync(join(tmpdir(), 'ackbox-build-'))
    const tar = join(made, 'source.tar')
    await run('git', ['archive', '--output', tar, commit], inRoot)
    await run('tar', ['-xf', tar, '-C', made])
    rmSync(tar)
    await run('npm', ['ci', '--prefer-offline', '--no-audit', '--no-fund'], { cwd: made, maxBuffer: 2 ** 24 })
    await run(process.execPath, ['node_modules/typescript/bin/tsc', '-p', 'tsconfig.json'], { cwd: made })
    rmSync(folder, { recursive: true, force: true })
    renameSync(made, folder)
  }
  return folder
}
