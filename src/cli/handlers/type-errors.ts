// The type errors of the handlers, found by the TypeScript of their project.
import { spawn } from 'node:child_process'
import { existsSync, readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { setPriority } from 'node:os'
import { dirname, join, relative, resolve, sep } from 'node:path'
import { handlerFiles } from '../../handler/files.ts'
import { isTypeScript } from '../../handler/typescript.ts'
import { memberOf } from '../../runtime/text-of.ts'

/** Lines to print. `errors`: how many of them are type errors. */
export interface TypeCheck {
  errors: number
  lines: string[]
}

/** A larger report helps nobody. */
const mostLines = 20
/** Below the service that starts beside it. */
const niceness = 10
/** For a folder without a tsconfig.json. */
const options =
  '--strict --target es2023 --module nodenext --skipLibCheck --allowImportingTsExtensions --erasableSyntaxOnly'.split(
    ' '
  )

/** `signal` ends the check early. Only handlers in TypeScript are checked. */
export async function typeErrors(folder: string, signal?: AbortSignal): Promise<TypeCheck> {
  const files = (handlerFiles(folder) ?? []).map(({ path }) => path).filter(isTypeScript)
  if (files.length === 0) return { errors: 0, lines: [] }
  const tsc = compilerOf(folder)
  if (tsc === undefined)
    return {
      errors: 0,
      lines: ['The types of the handlers are not checked: `npm install --save-dev typescript` adds the check']
    }
  const project = projectOf(folder)
  const cwd = project ?? folder
  const args = project === undefined ? [...options, ...files] : ['-p', join(project, 'tsconfig.json')]
  const text = await output(process.execPath, [tsc, ...args, '--noEmit', '--pretty', 'false'], cwd, signal)
  const found = text.split('\n').flatMap(line => {
    const [, file, at, column, what] = /^(\S.*?)\((\d+),(\d+)\): error (TS\d+: .*)$/.exec(line) ?? []
    if (file === undefined) return []
    const path = resolve(cwd, file)
    // Errors elsewhere in the project are not those of a handler.
    if (!path.startsWith(folder + sep)) return []
    return [`${relative(process.cwd(), path)}:${at}:${column} ${what}`]
  })
  const more = found.length - mostLines
  return {
    errors: found.length,
    lines: [...found.slice(0, mostLines), ...(more > 0 ? [`… and ${more} more`] : [])]
  }
}

/** The program of the TypeScript that the folder's project has installed. */
function compilerOf(folder: string): string | undefined {
  try {
    const path = createRequire(join(folder, 'handler.js')).resolve('typescript/package.json')
    const bin = memberOf(JSON.parse(readFileSync(path, 'utf8')) as object, 'bin') as { tsc?: unknown }
    return typeof bin.tsc === 'string' ? join(dirname(path), bin.tsc) : undefined
  } catch {
    return undefined
  }
}

/** The nearest folder with a tsconfig.json. */
function projectOf(folder: string): string | undefined {
  for (let at = folder; ; at = dirname(at)) {
    if (existsSync(join(at, 'tsconfig.json'))) return at
    if (at === dirname(at)) return undefined
  }
}

async function output(
  program: string,
  args: string[],
  cwd: string,
  signal: AbortSignal | undefined
): Promise<string> {
  const child = spawn(program, args, {
    cwd,
    stdio: ['ignore', 'pipe', 'ignore'],
    ...(signal === undefined ? {} : { signal })
  })
  let text = ''
  child.stdout.on('data', (chunk: Buffer) => (text += chunk.toString()))
  return await new Promise(done => {
    child.once('error', () => done(''))
    child.once('close', () => done(text))
    child.once('spawn', () => {
      try {
        setPriority(child.pid ?? 0, niceness)
      } catch {} // it has ended
    })
  })
}
