"""The part of the Hugging Face Hub's HTTP API that pushing and loading a run needs."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit


class FakeHub:
    """A server on this machine; `repositories` has the files of each, by commit."""

    def __init__(self) -> None:
        self.repositories: dict[str, dict[str, dict[str, bytes]]] = {}
        self.private: set[str] = set()
        self.requests: list[str] = []
        hub = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer(*hub.get(unquote(urlsplit(self.path).path)))

            do_HEAD = do_GET

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                self._answer(*hub.post(unquote(urlsplit(self.path).path), body))

            def _answer(self, status: int, content: Any, headers: dict[str, str]) -> None:
                hub.requests.append(f"{self.command} {self.path} {status}")
                data = content if isinstance(content, bytes) else json.dumps(content).encode()
                self.send_response(status)
                for name, value in {"Content-Length": str(len(data)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(data)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def add(self, repository: str, content: dict[str, bytes]) -> str:
        """A new commit with these files; its id."""
        commits = self.repositories.setdefault(repository, {})
        commit = hashlib.sha1(f"{repository} {len(commits)}".encode()).hexdigest()
        commits[commit] = content
        return commit

    def last(self, repository: str) -> str:
        return list(self.repositories[repository])[-1]

    def get(self, path: str) -> tuple[int, Any, dict[str, str]]:
        parts = path.strip("/").split("/")
        is_api = parts[:2] == ["api", "models"]
        repository = "/".join(parts[2:4] if is_api else parts[:2])
        if not self.repositories.get(repository):
            return 404, {"error": "Repository not found"}, {"X-Error-Code": "RepoNotFound"}
        rest = parts[4:] if is_api else parts[2:]
        revision = rest[1] if len(rest) > 1 else "main"
        commit = self.last(repository) if revision == "main" else revision
        if commit not in self.repositories[repository]:
            return 404, {"error": "Revision not found"}, {"X-Error-Code": "RevisionNotFound"}
        content = self.repositories[repository][commit]
        if is_api and rest[:1] == ["tree"]:
            entries = [
                {"type": "file", "path": name, "size": len(data), "oid": _oid(data)}
                for name, data in content.items()
            ]
            return 200, entries, {}
        if is_api:
            siblings = [{"rfilename": name, "size": len(content[name])} for name in content]
            about = {"id": repository, "sha": commit, "siblings": siblings, "private": False}
            return 200, about, {}
        name = "/".join(rest[2:])
        if name not in content:
            return 404, {"error": "Entry not found"}, {"X-Error-Code": "EntryNotFound"}
        return 200, content[name], {"X-Repo-Commit": commit, "ETag": f'"{_oid(content[name])}"'}

    def post(self, path: str, body: bytes) -> tuple[int, Any, dict[str, str]]:
        parts = path.strip("/").split("/")
        if path == "/api/repos/create":
            asked = json.loads(body)
            name = f"{asked['organization']}/{asked['name']}"
            is_private = asked.get("private") or asked.get("visibility") == "private"
            self.private |= {name} if is_private else set()
            status = 409 if name in self.repositories else 200
            if status == 200:
                self.add(name, {".gitattributes": b""})
            return status, {"url": f"{self.url}/{name}", "name": name}, {}
        if path == "/api/validate-yaml":
            return 200, {"errors": [], "warnings": []}, {}
        repository = "/".join(parts[2:4])
        if parts[4] == "preupload":
            paths = [file["path"] for file in json.loads(body)["files"]]
            modes = [{"path": p, "uploadMode": "regular", "shouldIgnore": False} for p in paths]
            return 200, {"files": modes}, {}
        commits = self.repositories[repository]
        content = dict(commits[self.last(repository)]) if commits else {}
        for line in body.decode().splitlines():
            entry = json.loads(line)
            if entry["key"] == "file":
                content[entry["value"]["path"]] = base64.b64decode(entry["value"]["content"])
            elif entry["key"] == "deletedFile":
                del content[entry["value"]["path"]]
        commit = self.add(repository, content)
        url = f"{self.url}/{repository}/commit/{commit}"
        return 200, {"success": True, "commitOid": commit, "commitUrl": url}, {}


def _oid(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
