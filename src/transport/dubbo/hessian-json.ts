const full = new Error('full')

/**
 * JSON of what a method returned, no longer than about `most` characters; `whole` says whether that is all of it. A value
 * within itself is null, and so is a number that JSON has not. A few bytes of hessian's references can stand for more than
 * any memory holds: so it ends where it is full.
 */
export function jsonOf(value: unknown, most: number): { text: string; whole: boolean } {
  const parts: string[] = []
  const above = new Set<object>()
  let length = 0

  function add(part: string): void {
    parts.push(part)
    length += part.length
    if (length > most) throw full
  }

  function write(each: unknown): void {
    if (typeof each !== 'object' || each === null) return add(JSON.stringify(each) ?? 'null')
    if (each instanceof Date) return add(JSON.stringify(each))
    if (each instanceof Uint8Array) return add(JSON.stringify(Buffer.from(each).toString('base64')))
    if (above.has(each)) return add('null')
    above.add(each)
    if (Array.isArray(each)) list(each)
    else map(each)
    above.delete(each)
  }

  function list(items: unknown[]): void {
    add('[')
    for (const [i, item] of items.entries()) {
      if (i > 0) add(',')
      write(item)
    }
    add(']')
  }

  function map(members: object): void {
    let between = '{'
    for (const [name, each] of Object.entries(members)) {
      add(`${between}${JSON.stringify(name)}:`)
      between = ','
      write(each)
    }
    add(between === '{' ? '{}' : '}')
  }

  try {
    write(value)
  } catch (error) {
    if (error !== full && !(error instanceof RangeError)) throw error
    return { text: parts.join('').slice(0, most), whole: false }
  }
  return { text: parts.join(''), whole: true }
}
