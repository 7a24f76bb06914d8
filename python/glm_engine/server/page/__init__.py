"""The page at / and its files, read once from `page/`."""

from fastapi import APIRouter
from starlette.responses import Response

from glm_engine.core.layout import PAGE
from glm_engine.server.http.api_errors import ApiError

INDEX = "index.html"
MEDIA_TYPES = {".html": "text/html", ".js": "text/javascript", ".svg": "image/svg+xml"}
HEADERS = {
    "content-security-policy": "default-src 'self'; style-src 'self' 'unsafe-inline'; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    "x-content-type-options": "nosniff",
    "cache-control": "no-cache",
}


def page_files():
    """Return the page's files by name, as (bytes, media type)."""
    found = [path for path in sorted(PAGE.glob("*")) if path.suffix in MEDIA_TYPES]
    return {path.name: (path.read_bytes(), MEDIA_TYPES[path.suffix]) for path in found}


def pages_router(_service):
    router = APIRouter(include_in_schema=False)
    files = page_files()

    def show(name):
        if name not in files:
            raise ApiError(404, f"file not found: {name!r}")
        content, media_type = files[name]
        return Response(content, media_type=media_type, headers=HEADERS)

    @router.get("/")
    async def show_index():
        return show(INDEX)

    @router.get("/page/{name}")
    async def show_file(name: str):
        return show(name)

    return router
