/** What we use of it. */
declare module 'hessian.js' {
  class EncoderV2 {
    write(value: unknown): void
    get(): Buffer
  }
  class DecoderV2 {
    constructor(bytes: Buffer)
    read(): unknown
    _addRef(object: unknown): unknown
  }
}
