"""MkDocs hooks: notebooks and the change log as pages, so that each text exists once.

Pages link to `../notebooks/x.ipynb`, which works in a repository's browser too.
"""

import html
import json
import pathlib
import re
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = pathlib.Path(__file__).resolve().parents[1]


def on_files(files: Files, config: Any) -> Files:
  """Adds a page for each notebook, and the change log."""
  for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    page = File.generated(config, f"notebooks/{path.stem}.md", content=notebook_page(cells))
    files.append(page)
  text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
  files.append(File.generated(config, "changelog.md", content=text))
  return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
  """Turns links to notebooks into links to their pages."""
  if page.file.src_uri.startswith("notebooks/"):
    markdown = re.sub(r"\]\((\w+)\.ipynb\)", r"](\1.md)", markdown)
    return markdown.replace("](../docs/", "](../")
  markdown = re.sub(r"\]\(\.\./notebooks/(\w+)\.ipynb\)", r"](notebooks/\1.md)", markdown)
  return markdown.replace("](../CHANGELOG.md)", "](changelog.md)")


def notebook_page(cells: list[dict]) -> str:
  """A notebook's cells and outputs as Markdown."""
  parts = []
  for cell in cells:
    text = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
      parts.append(text)
      continue
    parts.append(f"```py\n{text}\n```")
    parts += [part for output in cell["outputs"] if (part := _output(output))]
  return "\n\n".join(parts) + "\n"


def _output(output: dict) -> str:
  if output["output_type"] == "stream":
    return f'<pre class="output">{html.escape("".join(output["text"]))}</pre>'
  data = output.get("data", {})
  if "image/png" in data:
    picture = "".join(data["image/png"]).replace("\n", "")
    return f'<img alt="a plot" src="data:image/png;base64,{picture}">'
  if "text/html" in data:
    return re.sub(r"\n\s*", " ", "".join(data["text/html"]))
  return ""
