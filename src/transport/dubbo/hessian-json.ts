const full = new Error('full')

/**
 * JSON of the value that a method returned, at most about `most` characters; `whole` is false if it was cut. A value that
 * contains itself is null there, and so is a number that JSON cannot express. The limit is needed because a few bytes of
 * hessian references can expand to more than the memory holds.
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
