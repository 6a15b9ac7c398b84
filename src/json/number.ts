/**
 * Does this JSON number name the same decimal after a trip through a double? `0.1` and `1e21` do;
 * `9007199254740993`, `1e400` and `0.10000000000000000555` do not. `-0` counts as 0.
 */
export function survivesDouble(text: string): boolean {
  const double = Number(text)
  return Number.isFinite(double) && decimal(text) === decimal(String(double))
}

/** Sign, significant digits and power of ten: equal for equal decimals, however they are written. */
function decimal(text: string): string {
  const negative = text.startsWith('-')
  const e = text.search(/[eE]/)
  const mantissa = text.slice(negative ? 1 : 0, e < 0 ? text.length : e)
  const point = mantissa.indexOf('.')
  const digits = point < 0 ? mantissa : mantissa.slice(0, point) + mantissa.slice(point + 1)
  // Loops, not /0+$/: that takes quadratic time on a long run of zeros that does not end the text.
  let first = 0
  while (first < digits.length && digits[first] === '0') first++
  if (first === digits.length) return '0'
  let last = digits.length
  while (digits[last - 1] === '0') last--
  const fraction = point < 0 ? 0 : mantissa.length - point - 1
  const power = (e < 0 ? 0 : Number(text.slice(e + 1))) - fraction + digits.length - last
  return `${negative ? '-' : ''}${digits.slice(first, last)}e${power}`
}
