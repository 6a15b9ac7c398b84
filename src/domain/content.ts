/** What a task says, except its `taskNo` and its trace, as hashes. */
export interface Content {
  /** Of its members as they were posted. */
  contentHash: string
  /** Of its members in their normal form. Null: the same. A process of version 1.0 stores none. */
  contentNormal?: string | null
}

/** They are the same as they were posted, or in their normal form. Nothing else compares contents. */
export const isSameContent = (one: Content, other: Content): boolean =>
  one.contentHash === other.contentHash || normalHash(one) === normalHash(other)

/** Equal for two posts of the same content that this version has read. */
export const normalHash = ({ contentHash, contentNormal }: Content): string => contentNormal ?? contentHash
