import { readFileSync } from 'node:fs'
import { resolve } from 'node:path'
import { pathToFileURL } from 'node:url'
import { messageOf } from '../runtime/errors.ts'
import { commandLine } from '../runtime/package.ts'
import { originsFrom } from '../transport/url.ts'
import type { HandlerRules, UndefinedMember } from './checked-request.ts'
import { checkHandler, type HandlerError } from './validate.ts'
import type { LoadedHandler } from './loaded.ts'
import { dtmHandlers, type DtmTargets } from './dtm.ts'
import { namesMissing, useEnv } from './env.ts'
import { handlerFiles, type HandlerFile } from './files.ts'
import { prepareForHandlers } from './resolve.ts'
import { scanSource } from './scan-source.ts'
import { sharedDownstreams, type SharedDownstream } from './shared-downstreams.ts'
import { isTypeScript, placeOf } from './typescript.ts'
import { helpersOf, versionOf } from './version.ts'
import { withTimeout } from '../runtime/with-timeout.ts'
import { isError, memberOf, textOf } from '../runtime/text-of.ts'

export interface Registry {
  handlers: Map<string, LoadedHandler>
  downstreams: Map<string, SharedDownstream>
  targets: NamedTarget[]
}

/** An HTTP server named in a handler's source: a value of `env` that is a URL, or an origin that is written out. */
export interface NamedTarget {
  file: string
  name: string
  url: string
}

export interface HandlerProblem extends HandlerError {
  file: string
}

export interface LoadOptions {
  /** HANDLERS_DIR: a folder of `.js`, `.mjs`, `.ts` or `.mts`. Used instead of `builtIn`. */
  dir?: string
  /** The project's own folder: `builtInHandlers` (files.ts), except in tests. */
  builtIn: string
  /** The source of `env`: process.env, with the demo's defaults as a fallback. */
  env: Readonly<Record<string, string | undefined>>
  transports: readonly string[]
  /** An undefined member of a body fails the attempt, as if each handler had `strictBody`. */
  strictBody?: boolean
  /** Called once for each undefined member of a body that does not fail. */
  onUndefined?: (member: UndefinedMember) => void
  /** The time limit for the import of one file, ms. */
  importMs?: number
  /** Set if DTM=on. Each target gets its own handler. */
  dtmTargets?: DtmTargets
}

/** All errors of all handlers. */
export class HandlersError extends Error {
  readonly problems: HandlerProblem[]

  constructor(folder: string, problems: HandlerProblem[]) {
    super(report(folder, problems))
    this.name = 'HandlersError'
    this.problems = problems
  }
}

/**
 * Loads every handler of a folder. Throws HandlersError with all errors at once.
 * Helpers are in subfolders, or in files whose names start with `_`.
 */
export async function loadHandlers({
  dir,
  builtIn,
  env,
  transports,
  importMs = 30_000,
  strictBody = false,
  onUndefined = () => {},
  dtmTargets = new Map()
}: LoadOptions): Promise<Registry> {
  const folder = resolve(dir ?? builtIn)
  useEnv(env)
  originsFrom(env)

  const problems: HandlerProblem[] = []
  const exported: Exported[] = []
  const targets: NamedTarget[] = []
  const found = files(folder, problems)
  const helpers = helpersOf(folder)
  prepareForHandlers({ folder, typescript: found.some(({ path }) => isTypeScript(path)) })
  for (const file of found) {
    // Files are loaded one after the other, so that a name missing in `env` belongs to the file being loaded.
    exported.push(...(await read(file, { env, importMs, helpers }, problems, targets)))
  }
  twice(exported, problems)
  const loaded = exported.flatMap(each =>
    checked(each, transports, { strictBody, warn: onUndefined }, problems)
  )
  addDtm(loaded, targets, dtmTargets, problems)
  const downstreams = sharedDownstreams(loaded, problems)
  if (problems.length > 0) {
    throw new HandlersError(
      folder,
      problems.toSorted((a, b) => (a.file < b.file ? -1 : a.file > b.file ? 1 : 0))
    )
  }
  return { handlers: new Map(loaded.map(handler => [handler.messageCode, handler])), downstreams, targets }
}

/** The default export of a file, not checked yet. */
interface Exported {
  file: string
  handler: unknown
  version: number
}

function files(folder: string, problems: HandlerProblem[]): HandlerFile[] {
  let found: HandlerFile[] | undefined
  try {
    found = handlerFiles(folder)
  } catch (err) {
    problems.push({
      file: folder,
      what: `the folder cannot be read: ${messageOf(err)}`,
      fix: 'let the user of this process read it, or set HANDLERS_DIR to another one'
    })
    return []
  }
  if (!found) {
    problems.push({
      file: folder,
      what: 'the folder does not exist',
      fix: 'set HANDLERS_DIR to the folder of your handlers'
    })
  } else if (found.length === 0) {
    problems.push({
      file: folder,
      what: 'the folder has no handlers',
      fix: 'put one file per messageCode there: .js, .mjs, .ts or .mts'
    })
  }
  return found ?? []
}

async function read(
  { path, name: file }: HandlerFile,
  { env, importMs, helpers }: { env: LoadOptions['env']; importMs: number; helpers: string },
  problems: HandlerProblem[],
  targets: NamedTarget[]
): Promise<Exported[]> {
  const wrong = (what: string, fix: string): [] => {
    problems.push({ file, what, fix })
    return []
  }
  const ending = /\.c([jt]s)$/.exec(file)?.[1]
  if (ending !== undefined) {
    return wrong(
      'it is CommonJS, which is not loaded',
      `rename it to .${ending} or .m${ending}, with \`export default\`; a helper goes into a subfolder, or its name starts with _`
    )
  }
  let source: string
  try {
    source = readFileSync(path, 'utf8')
  } catch (err) {
    return wrong(`it cannot be read: ${messageOf(err)}`, 'let the user of this process read it, or remove it')
  }
  let exports: unknown
  let failed: unknown
  const missing = await namesMissing(async () => {
    try {
      // A file without its end would keep the start waiting, without a word.
      exports = await withTimeout(import(pathToFileURL(path).href), importMs, () => {
        throw new Error(`its top-level await has not ended after ${importMs / 1000} s`)
      })
    } catch (err) {
      failed = err
    }
  })
  const { names, optional, origins } = scanSource(source)
  for (const name of names) if (!env[name] && !optional.has(name)) missing.add(name)
  targets.push(...origins.map(url => ({ file, name: url, url })))
  for (const name of names) {
    const url = env[name]
    if (url !== undefined && /^https?:\/\//.test(url)) targets.push({ file, name, url })
  }
  for (const name of missing) wrong(`it needs ${name}, which is not set`, `set ${name}, for example in .env`)
  if (failed) {
    // Fixing the missing value also fixes the errors that it caused.
    return missing.size > 0
      ? []
      : wrong(
          [`it does not load: ${firstLines(failed)}`, placeOf(failed, path)].filter(Boolean).join(', in '),
          `fix it; \`${commandLine('handlers')}\` checks it`
        )
  }
  if (typeof exports !== 'object' || exports === null || !('default' in exports)) {
    return wrong(
      'it has no default export',
      'export default defineHandler({ … }), or start the name of a helper with _'
    )
  }
  return [{ file, handler: exports.default, version: versionOf([source, helpers], names, env) }]
}

function checked(
  { file, handler, version }: Exported,
  transports: readonly string[],
  rules: HandlerRules,
  problems: HandlerProblem[]
): LoadedHandler[] {
  let checked: ReturnType<typeof checkHandler>
  try {
    checked = checkHandler(handler, file, transports, rules)
  } catch (err) {
    const what = `its default export cannot be read: ${textOf(err)}`
    problems.push({ file, what, fix: 'export default defineHandler({ … })' })
    return []
  }
  if (!Array.isArray(checked)) return [versioned(checked, version)]
  problems.push(...checked.map(each => ({ file, ...each })))
  return []
}

const versioned = (handler: LoadedHandler, handlerVersion: number): LoadedHandler => ({
  ...handler,
  downstreams: handler.downstreams.map(one => ({ ...one, handlerVersion }))
})

/** Duplicate messageCodes. Checked before the rest of each handler, so that all errors are reported together. */
function twice(exported: Exported[], problems: HandlerProblem[]): void {
  const first = new Map<string, string>()
  for (const { file, handler } of exported) {
    if (typeof handler !== 'object' || handler === null || !('messageCode' in handler)) continue
    const code = handler.messageCode
    if (typeof code !== 'string') continue
    const other = first.get(code)
    if (other === undefined) first.set(code, file)
    else {
      problems.push({
        file,
        what: `messageCode '${code}' already has a handler in ${other}`,
        fix: 'one file per messageCode: put the downstreams of both into one'
      })
    }
  }
}

function addDtm(
  loaded: LoadedHandler[],
  named: NamedTarget[],
  targets: DtmTargets,
  problems: HandlerProblem[]
): void {
  for (const handler of dtmHandlers(targets)) {
    const other = loaded.find(each => each.messageCode === handler.messageCode)
    if (other)
      problems.push({
        file: other.file,
        what: `messageCode '${handler.messageCode}' is also a target in DTM_TARGETS`,
        fix: 'rename one of them'
      })
    // Its code is that of Ackbox: only its origin can change what it sends.
    else
      loaded.push(versioned(handler, versionOf([handler.messageCode, JSON.stringify([...targets])], [], {})))
  }
  for (const [name, url] of targets) named.push({ file: 'DTM_TARGETS', name, url })
}

function firstLines(err: unknown): string {
  const name = isError(err) ? `${textOf(memberOf(err, 'name'))}: ` : ''
  return (name + textOf(err, 1_000)).split('\n').slice(0, 2).join(' ').slice(0, 300)
}

function report(folder: string, problems: HandlerProblem[]): string {
  const lines = [...new Set(problems.map(problem => problem.file))].flatMap(file => [
    `\n  ${file}`,
    ...problems.filter(problem => problem.file === file).map(({ what, fix }) => `    ${what}\n      → ${fix}`)
  ])
  const count = problems.length === 1 ? '1 error' : `${problems.length} errors`
  return `${count} in the handlers of ${folder}:\n${lines.join('\n')}`
}

/** In ms. */
export const longestTimeout = ({ downstreams }: Registry): number =>
  Math.max(0, ...[...downstreams.values()].map(each => each.timeoutMs))
