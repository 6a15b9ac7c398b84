// The site of these pages: `npm run docs` builds it into docs/.vitepress/dist, `npm run docs:dev` serves it while you write.
import path from 'node:path'
import { defineConfig, type DefaultTheme } from 'vitepress'
import { slug } from '../../test/docs/markdown.ts'
import { copyLinked, excluded, linkOf, pages, root, routeOf, titleOf } from './pages.ts'
import { tags } from './reference.ts'

const item = (file: string): DefaultTheme.SidebarItem => ({ text: titleOf(file), link: `/${routeOf(file)}` })
/** These first, and what lies below a page behind it; whatever nobody named comes last. */
function sidebar(folder: string, groups: [text: string, names: string[]][], rest: string): DefaultTheme.SidebarItem[] {
  const here = pages.filter(file => file.startsWith(folder) && (folder !== 'docs/' || !file.startsWith('docs/zh/')))
  const named = groups.map(([text, names]) => ({
    text,
    files: names.flatMap(name => here.filter(file => file === `${folder}${name}.md` || file.startsWith(`${folder}${name}/`)))
  }))
  const left = here.filter(file => !named.some(({ files }) => files.includes(file)))
  return [...named, { text: rest, files: left }]
    .filter(({ files }) => files.length > 0)
    .map(({ text, files }) => ({ text, collapsed: false, items: files.map(item) }))
}

const reference: DefaultTheme.SidebarItem = {
  text: 'API',
  items: tags.map(tag => ({ text: tag, link: `/reference/${tag}` }))
}
const english = sidebar(
  'docs/',
  [
    ['Start', ['getting-started', 'handlers', 'order', 'exactly-once']],
    ['Producers', ['producers', 'moving-in', 'dtm']],
    ['Receivers', ['receivers', 'transports']],
    ['Operate', ['operations', 'config', 'dashboard', 'alarms', 'observability', 'reconcile', 'states']],
    ['Trust', ['promise', 'chaos', 'model', 'performance', 'architecture', 'decisions']]
  ],
  'More'
)
const chinese = sidebar(
  'docs/zh/',
  [
    ['开始', ['getting-started', 'handlers', 'order', 'exactly-once', 'examples', 'terms']],
    ['生产者', ['producers', 'moving-in', 'dtm']],
    ['接收方', ['receivers', 'transports']],
    ['运维', ['operations', 'config', 'dashboard', 'alarms', 'observability', 'reconcile', 'states']],
    ['承诺', ['promise', 'chaos', 'model', 'security', 'performance', 'architecture', 'contributing']]
  ],
  '更多'
)

export default defineConfig({
  title: 'Ackbox',
  description: 'The outbox that waits for the ACK',
  srcDir: '..',
  srcExclude: excluded,
  rewrites: routeOf,
  // Every link is checked, here by VitePress and in linkOf; a dead one ends the build.
  ignoreDeadLinks: false,
  markdown: {
    attrs: { disable: true },
    anchor: { slugify: slug },
    languageAlias: { caddyfile: 'nginx' },
    config(md) {
      // Indented blocks look like fenced ones.
      const { fence } = md.renderer.rules
      if (fence)
        md.renderer.rules.code_block = (tokens, at, ...rest) => {
          for (const token of tokens.slice(at, at + 1)) token.info = 'txt'
          return fence(tokens, at, ...rest)
        }
      md.core.ruler.push('links', ({ tokens, env }) => {
        const file = path.relative(root, env.realPath ?? env.path).replaceAll(path.sep, '/')
        for (const token of tokens.flatMap(each => [each, ...(each.children ?? [])])) {
          // Else the bundler takes a picture for a package.
          if (token.type.startsWith('html_'))
            token.content = token.content.replaceAll(/<img src="(?=\w+\/)/g, '<img src="./')
          const href = token.type === 'link_open' ? token.attrGet('href') : null
          if (href !== null) token.attrSet('href', linkOf(file, href))
        }
      })
    }
  },
  themeConfig: {
    // Not every page is there in Chinese: the other language begins at its first page.
    i18nRouting: false,
    search: {
      provider: 'local',
      options: {
        // Chinese has no spaces between its words.
        miniSearch: {
          options: {
            tokenize(text) {
              const words = new Intl.Segmenter('zh', { granularity: 'word' })
              const found = []
              // Piece by piece: V8 copies the whole text that is segmented into each of its segments.
              for (const piece of text.split(/\s+/))
                for (const { segment, isWordLike } of words.segment(piece)) if (isWordLike) found.push(segment)
              return found
            }
          }
        },
        locales: {
          zh: {
            translations: {
              button: { buttonText: '搜索', buttonAriaLabel: '搜索' },
              modal: {
                noResultsText: '没有结果：',
                resetButtonTitle: '清空',
                displayDetails: '显示详情',
                footer: { selectText: '选择', navigateText: '移动', closeText: '关闭' }
              }
            }
          }
        }
      }
    },
    outline: [2, 3]
  },
  locales: {
    root: {
      label: 'English',
      lang: 'en',
      themeConfig: {
        nav: [
          { text: 'Getting started', link: '/getting-started' },
          { text: 'API', link: '/reference/tasks' },
          { text: 'Changes', link: '/CHANGELOG' }
        ],
        sidebar: [...english, reference]
      }
    },
    zh: {
      label: '中文',
      lang: 'zh-CN',
      description: '等到回执才算数的发件箱',
      themeConfig: {
        nav: [
          { text: '快速上手', link: '/zh/getting-started' },
          { text: '术语表', link: '/zh/terms' },
          { text: 'API', link: '/reference/tasks' }
        ],
        sidebar: [...chinese, reference],
        outline: { level: [2, 3], label: '本页' },
        docFooter: { prev: '上一页', next: '下一页' },
        darkModeSwitchLabel: '外观',
        sidebarMenuLabel: '目录',
        returnToTopLabel: '回到顶部',
        langMenuLabel: '语言'
      }
    }
  },
  buildEnd({ outDir }) {
    copyLinked(outDir)
  }
})
