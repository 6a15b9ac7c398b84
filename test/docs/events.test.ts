// Operators look up log events by name. The pages list every event, and none that no longer exists.
import { readdirSync, readFileSync } from 'node:fs'
import path from 'node:path'
import t from 'tap'

const root = path.resolve(import.meta.dirname, '../../..')
const sources = readdirSync(path.join(root, 'src'), { recursive: true, encoding: 'utf8' })
  .filter(file => file.endsWith('.ts'))
  .map(file => ({ file, text: readFileSync(path.join(root, 'src', file), 'utf8') }))

interface Event {
  file: string
  level: string
  name: string
}

/** Event names that contain a variable, with the values from the sources. */
const completed: Record<string, (text: string) => string[]> = {
  '`${name}.failed`': text => [...text.matchAll(/\bfailed\('(\w+)'\)/g)].map(([, name]) => `${name}.failed`),
  '`doctor.${level}`': () => ['doctor.fix', 'doctor.warn']
}

/** The last argument of every call of a logger. */
function eventsOf({ file, text }: { file: string; text: string }): Event[] {
  return [...text.matchAll(/\blog\??\.(debug|info|warn|error)\(/g)].flatMap(call => {
    const [opening, level = ''] = call
    const last = lastArgument(text, call.index + opening.length)
    const names =
      completed[last]?.(text) ??
      [...last.matchAll(/(?:^|[?:] )'([a-z_]+(?:\.[a-z_]+)*)'/g)].map(([, name]) => name)
    if (names.length === 0) throw new Error(`${file}: ${last} is no name of an event`)
    return names.map(name => ({ file, level, name: name ?? '' }))
  })
}

function lastArgument(text: string, from: number): string {
  let depth = 1
  let start = from
  let at = from
  for (; depth > 0 && at < text.length; at++) {
    const char = text[at] ?? ''
    if ('([{'.includes(char)) depth++
    else if (')]}'.includes(char)) depth--
    else if (`'"\``.includes(char)) at = text.indexOf(char, at + 1)
    else if (char === ',' && depth === 1 && text.slice(at + 1).trimStart()[0] !== ')') start = at + 1
  }
  return text
    .slice(start, at - 1)
    .trim()
    .replace(/,$/, '')
}

const logged = sources.flatMap(eventsOf)

/** Rows of the table under the heading `Log events`: name -> levels. */
function tableOf(page: string): Map<string, string> {
  const text = readFileSync(path.join(root, page), 'utf8')
  const [, table = ''] = /^### (?:Log events|日志事件)\n([^]*?)^###? /m.exec(text) ?? []
  return new Map(
    [...table.matchAll(/^\| (`[^|]+`) \| ([^|]+) \|/gm)].flatMap(([, names = '', levels = '']) =>
      [...names.matchAll(/`([^`]+)`/g)].map(([, name = '']): [string, string] => [name, levels])
    )
  )
}

for (const page of ['docs/operations.md', 'docs/zh/operations.md']) {
  t.test(`${page} lists every event of the log with its level`, async t => {
    const table = tableOf(page)
    t.ok(logged.length > 100 && table.size > 80, `${logged.length} calls, ${table.size} names`)
    const missing = logged.filter(({ level, name }) => !table.get(name)?.includes(level))
    t.same(missing, [], 'none is missing')
    const names = new Set(logged.map(({ name }) => name))
    t.same(
      [...table.keys()].filter(name => !names.has(name)),
      [],
      'none is gone'
    )
  })
}
