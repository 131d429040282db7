"""A small server that answers as the Hugging Face hub does, for all that huggingface_hub asks in sharing models."""

import base64
import hashlib
import json
import re
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

TOKEN = "hf_" + "a" * 34
LARGE = (".safetensors", ".parquet")


class Hub(ThreadingHTTPServer):
    """Repositories in memory: names, branches, commits, files; large files by their sha256, as in git-lfs."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answers)
        self.repos: dict[str, dict[str, str]] = {}  # branches and their commits
        self.commits: dict[str, dict[str, bytes]] = {}
        self.private: dict[str, Any] = {}
        self.large: dict[str, bytes] = {}
        self.messages: list[str] = []
        self.asked: list[str] = []

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def commit(self, repo: str, branch: str, files: dict[str, bytes]) -> str:
        name = hashlib.sha1(repr((repo, branch, len(self.commits), sorted(files))).encode()).hexdigest()
        self.commits[name] = files
        self.repos[repo][branch] = name
        return name

    def files(self, repo: str, revision: str = "main") -> dict[str, bytes]:
        return self.commits[self.repos[repo].get(revision, revision)]


class _Answers(BaseHTTPRequestHandler):
    server: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        pass

    def answer(self, status: int, content: Any = None, **headers: str) -> None:
        body = content if isinstance(content, bytes) else json.dumps(content or {}).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def handle_any(self) -> None:
        path = unquote(urlsplit(self.path).path)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.asked.append(f"{self.command} {path}")
        if self.command == "POST" and self.headers.get("Authorization") != f"Bearer {TOKEN}":
            return self.answer(401, {"error": "Invalid user token"})
        for pattern, method in _ROUTES:
            if (match := re.fullmatch(pattern, f"{self.command} {path}")) is not None:
                return method(self, body, **match.groupdict())
        return self.answer(404, {"error": f"no {self.command} {path}"})

    do_GET = do_POST = do_PUT = do_HEAD = handle_any

    def create(self, body: bytes) -> None:
        asked = json.loads(body)
        repo = f"{asked.get('organization') or 'anna'}/{asked['name']}"
        if repo in self.server.repos:
            return self.answer(409, {"url": f"{self.server.address}/{repo}", "error": "exists"})
        self.server.repos[repo], self.server.private[repo] = {}, asked.get("private", asked.get("visibility"))
        self.server.commit(repo, "main", {".gitattributes": b"*.safetensors filter=lfs\n"})
        return self.answer(200, {"url": f"{self.server.address}/{repo}", "name": repo})

    def branch(self, body: bytes, repo: str, revision: str) -> None:
        self.server.repos[repo].setdefault(revision, self.server.repos[repo]["main"])
        self.answer(201)

    def valid(self, body: bytes) -> None:
        assert json.loads(body)["content"].startswith("---\nlibrary_name: marsrec\n")
        self.answer(200, {"errors": [], "warnings": []})

    def preupload(self, body: bytes, repo: str, revision: str) -> None:
        modes = [
            {
                "path": file["path"],
                "uploadMode": "lfs" if file["path"].endswith(LARGE) else "regular",
                "shouldIgnore": False,
                "oid": None,
            }
            for file in json.loads(body)["files"]
        ]
        self.answer(200, {"files": modes})

    def batch(self, body: bytes, repo: str) -> None:
        objects = [
            {**wanted, "actions": {"upload": {"href": f"{self.server.address}/large/{wanted['oid']}"}}}
            for wanted in json.loads(body)["objects"]
        ]
        self.answer(200, {"transfer": "basic", "objects": objects}, Content_Type="application/vnd.git-lfs+json")

    def upload(self, body: bytes, oid: str) -> None:
        assert hashlib.sha256(body).hexdigest() == oid
        self.server.large[oid] = body
        self.answer(200)

    def committed(self, body: bytes, repo: str, revision: str) -> None:
        files = dict(self.server.files(repo, revision))
        for line in map(json.loads, body.splitlines()):
            kind, value = line["key"], line["value"]
            if kind == "header":
                self.server.messages.append(value["summary"])
            elif kind == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif kind == "lfsFile":
                files[value["path"]] = self.server.large[value["oid"]]
            elif kind == "deletedFile":
                del files[value["path"]]
        name = self.server.commit(repo, revision, files)
        self.answer(200, {"commitUrl": f"{self.server.address}/{repo}/commit/{name}", "commitOid": name})

    def found(self, repo: str, revision: str) -> str | None:
        """The commit, or None where it has been answered that there is none."""
        branches = self.server.repos.get(repo)
        if branches is None:
            self.answer(404, {"error": "Repository not found"}, X_Error_Code="RepoNotFound")
            return None
        name = branches.get(revision, revision)
        if name not in self.server.commits:
            self.answer(404, {"error": "Invalid rev id"}, X_Error_Code="RevisionNotFound")
            return None
        return name

    def info(self, body: bytes, repo: str, revision: str = "main") -> None:
        if (name := self.found(repo, revision)) is not None:
            files = [{"rfilename": path} for path in self.server.commits[name]]
            self.answer(200, {"id": repo, "sha": name, "private": False, "tags": [], "siblings": files})

    def tree(self, body: bytes, repo: str, revision: str) -> None:
        if (name := self.found(repo, revision)) is not None:
            self.answer(200, [self.entry(path, content) for path, content in self.server.commits[name].items()])

    @staticmethod
    def entry(path: str, content: bytes) -> dict[str, Any]:
        entry: dict[str, Any] = {"type": "file", "path": path, "size": len(content), "oid": etag(content)}
        if path.endswith(LARGE):
            entry["lfs"] = {"oid": hashlib.sha256(content).hexdigest(), "size": len(content), "pointerSize": 1}
        return entry

    def resolve(self, body: bytes, repo: str, revision: str, path: str) -> None:
        if (name := self.found(repo, revision)) is None:
            return None
        content = self.server.commits[name].get(path)
        if content is None:
            return self.answer(404, {"error": "Entry not found"}, X_Error_Code="EntryNotFound")
        tag = hashlib.sha256(content).hexdigest() if path.endswith(LARGE) else etag(content)
        return self.answer(200, content, ETag=f'"{tag}"', X_Repo_Commit=name)


def etag(content: bytes) -> str:
    """The name that git gives to a file."""
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


_REPO = r"(?P<repo>[\w.-]+/[\w.-]+)"
_ROUTES = [
    (r"POST /api/repos/create", _Answers.create),
    (r"POST /api/validate-yaml", _Answers.valid),
    (rf"POST /api/models/{_REPO}/branch/(?P<revision>[^/]+)", _Answers.branch),
    (rf"POST /api/models/{_REPO}/preupload/(?P<revision>[^/]+)", _Answers.preupload),
    (rf"POST /{_REPO}\.git/info/lfs/objects/batch", _Answers.batch),
    (r"PUT /large/(?P<oid>\w+)", _Answers.upload),
    (rf"POST /api/models/{_REPO}/commit/(?P<revision>[^/]+)", _Answers.committed),
    (rf"GET /api/models/{_REPO}/revision/(?P<revision>[^/]+)", _Answers.info),
    (rf"GET /api/models/{_REPO}", _Answers.info),
    (rf"GET /api/models/{_REPO}/tree/(?P<revision>[^/]+)", _Answers.tree),
    (rf"(?:GET|HEAD) /{_REPO}/resolve/(?P<revision>[^/]+)/(?P<path>.+)", _Answers.resolve),
]
