"""Answers in Markdown: one with all that it has, and ones that mean harm."""

WIDE = "a_rather_long_name = " + " + ".join(f"another_long_name_{at}" for at in range(9))
ANSWER = rf"""# Fourier

The **discrete** transform of *N* samples is $X_k = \sum_n x_n e^{{-ikn}}$ and costs $5 or $6.
See [the article](https://fourier.org/fft), `numpy.fft` and ~~nothing~~.

$$
\int_0^1 x^2\,dx = \sqrt{{2}}
$$

## Code

```python
@cached(size=3)
class Wave(Base):
    frequency: float = 440.0  # in Hz
    def samples(self):
        "A docstring."
        {WIDE}
        return None if len(self) > 2 else True
```

| Device | Memory | Bandwidth | Price in dollars | Notes |
|:-------|-------:|:---------:|-----------------:|-------|
| H100 | 80 GB | 3.35 TB/s | 30,000 | A long note that says rather a lot about it |
| H200 | 141 GB | 4.8 TB/s | 35,000 | `fp8` and **bf16** |

1. First, with \(a^2 + b^2 = c^2\)
2. Second
   - nested

- [x] done
- [ ] open

> A quotation
> over two lines.

---

\[
\begin{{aligned}}
f(x) &= (x + 1)^2 \\
&= x^2 + 2x + 1
\end{{aligned}}
\]

#### Last
"""

RUN = "window.isHarmed = true"
HARMFUL = {
    "script": f"<script>{RUN}</script>\n\nText <script>{RUN}</script>",
    "image": f'<img src="/x" onerror="{RUN}">\n\na <img src=http://else.org/x onerror="{RUN}">',
    "markdown image": "![alt](http://else.org/x.png) ![alt](/missing.png) ![x](data:image/png,x)",
    "links": (
        f"[a](javascript:{RUN}) [b](JaVaScRiPt:{RUN}) [c](data:text/html,x) [d](vbscript:x) "
        f"[e](&#106;avascript:{RUN}) [f](<java\tscript:{RUN}>) <javascript:{RUN}> [g](/v1/models) "
        f"[h][h] [i](//else.org) [j](file:///etc/passwd)\n\n[h]: javascript:{RUN}"
    ),
    "attributes": f'[a](http://b.org "x\\" onclick=\\"{RUN}") ![a" onerror="{RUN}](http://b.org)',
    "svg": f'<svg onload="{RUN}"><a xlink:href="javascript:{RUN}">x</a></svg>',
    "mathml": f'<math><mtext><style><img src=x onerror="{RUN}"></style></mtext></math>',
    "frames": "<iframe src=http://else.org></iframe><object data=/x></object><embed src=/x>",
    "style": "<style>* { display: none }</style>\n\n<link rel=stylesheet href=http://else.org/x>",
    "form": "<form action=http://else.org><button>Send</button></form>",
    "names": '<a id="prompt" name="log">x</a>\n\n# prompt',
    "language": f'```"><img src=x onerror="{RUN}">\na\n```\n\n```html\n<script>{RUN}</script>\n```',
    "formula links": rf"$\href{{javascript:{RUN}}}{{x}}$ $\url{{javascript:{RUN}}}$",
    "formula images": r"$\includegraphics{http://else.org/x.png}$ $$\includegraphics[alt=x]{/y}$$",
    "formula html": r"$\htmlData{a=b}{x} \htmlId{prompt}{x}$ $\htmlStyle{color:red}{x}$",
    "formula text": rf'$\text{{<img src=x onerror="{RUN}">}}$ $\label{{prompt}}\tag{{<b>}}$',
    "formula size": r"$\rule{9999em}{9999em}$ $\kern{-9999em}x$ $\raisebox{9999em}{x}$",
    "formula loops": r"$\def\a{\a\a}\a$ $\def\b{\c\c}\def\c{\b\b}\b$ $\cancelto{a}{b}$",
    "unclosed": '<a href="http://else.org\n\n<!-- ``` $$ \\[ **',
}
DEEP = {
    "quotes": ">" * 20_000,
    "spaced quotes": "> " * 20_000,
    "lists": "- " * 20_000,
    "steps": "\n".join("  " * depth + "- x" for depth in range(200)),
    "brackets": "[a](" * 5_000,
    "emphasis": "_a_ __b **c " * 2_000,
    "braces": "$" + "{" * 900 + "x" + "}" * 900 + "$",
    "roots": "$" + r"\sqrt{" * 250 + "x" + "}" * 250 + "$",
    "formulas": "$x$ " * 4_000,
    "table": "|a" * 2_000 + "|\n" + "|-" * 2_000 + "|\n" + "|b" * 2_000 + "|",
}
