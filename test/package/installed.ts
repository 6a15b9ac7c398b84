// The package as a user has it: packed from this working tree, and installed into an empty folder.
import { execFile, type ExecFileException } from 'node:child_process'
import { cpSync, mkdirSync, readdirSync, readFileSync, symlinkSync } from 'node:fs'
import path from 'node:path'
import { promisify } from 'node:util'
import type { Test } from 'tap'
import { folder } from '../support/service.ts'

export const root = path.resolve(import.meta.dirname, '../../..')

export interface Ended {
  code: number
  output: string
}

/** Runs a command until it exits, without the variables that the test runner and npm set for child processes. */
export async function run(cwd: string, command: string, ...args: string[]): Promise<Ended> {
  return await promisify(execFile)(command, args, { cwd, env: plainEnv(), maxBuffer: 1e8 }).then(
    ({ stdout, stderr }) => ({ code: 0, output: stdout + stderr }),
    (err: ExecFileException & { stdout: string; stderr: string }) => ({
      code: Number(err.code ?? -1),
      output: err.stdout + err.stderr
    })
  )
}

export function plainEnv(more: Record<string, string> = {}): Record<string, string> {
  const kept = [
    'PATH',
    'HOME',
    'npm_config_cache',
    'npm_config_registry',
    'SSL_CERT_FILE',
    'NODE_EXTRA_CA_CERTS'
  ]
  const { env } = process
  return { ...Object.fromEntries(kept.flatMap(name => (env[name] ? [[name, env[name]]] : []))), ...more }
}

/** A copy of the working tree, as git would commit it. Packages for the tarball are copied, other node_modules are links to ours. */
export async function copyTree(t: Test): Promise<string> {
  const copy = folder(t)
  const listed = await run(root, 'git', 'ls-files', '-co', '--exclude-standard')
  for (const file of listed.output.trim().split('\n')) {
    mkdirSync(path.dirname(path.join(copy, file)), { recursive: true })
    cpSync(path.join(root, file), path.join(copy, file), { force: true, errorOnExist: false })
  }
  const { bundleDependencies } = JSON.parse(readFileSync(path.join(root, 'package.json'), 'utf8')) as {
    bundleDependencies: string[]
  }
  const modules = path.join(copy, 'node_modules')
  mkdirSync(modules)
  for (const name of readdirSync(path.join(root, 'node_modules'))) {
    const from = path.join(root, 'node_modules', name)
    if (bundleDependencies.includes(name)) cpSync(from, path.join(modules, name), { recursive: true })
    else symlinkSync(from, path.join(modules, name))
  }
  return copy
}

/** The path of the tarball that `npm pack` makes from the copy. */
export async function pack(t: Test, copy: string): Promise<string> {
  const packed = await run(copy, 'npm', 'pack')
  t.equal(packed.code, 0, `npm pack\n${packed.code === 0 ? '' : packed.output}`)
  const [name = ''] = readdirSync(copy).filter(file => file.endsWith('.tgz'))
  return path.join(copy, name)
}
