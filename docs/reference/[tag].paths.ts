// A page for each tag of the API.
import { pageOf, tags } from '../.vitepress/reference.ts'

export default { paths: () => tags.map(tag => ({ params: { tag }, content: pageOf(tag) })) }
