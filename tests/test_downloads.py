"""A download is whole and the right file, or says what to do; a stopped one goes on."""

import gzip
import hashlib
import io
import re
import socket
import tarfile
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import numpy as np
import pytest
import torch

from labkit.downloads import PublishedFile
from labkit.training import data

CONTENT = bytes(range(256)) * 4096  # 1 MiB, some chunks


class Handler(BaseHTTPRequestHandler):
    """Serves one content, and breaks in the ways that servers do."""

    def do_GET(self):
        server, asked = self.server, self.headers.get("Range")
        server.asked.append(asked)
        content = server.files.get(self.path)
        if content is None:
            return self.send_error(404)
        start = int(re.fullmatch(r"bytes=(\d+)-", asked)[1]) if asked and server.ranges else 0
        if start >= len(content):
            return self.send_error(416)
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        if server.length:
            self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        self.wfile.write(content[start : server.stops_after])

    def log_message(self, *_):
        pass


@pytest.fixture
def server():
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        running.files, running.asked = {"/data.bin": CONTENT}, []
        running.ranges, running.length, running.stops_after = True, True, None
        running.url = f"http://127.0.0.1:{running.server_port}/data.bin"
        Thread(target=running.serve_forever, daemon=True).start()
        yield running
        running.shutdown()


def published(url, content=CONTENT):
    return PublishedFile(url, len(content), hashlib.sha256(content).hexdigest())


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_file_arrives_and_is_not_fetched_again(server, tmp_path):
    file, folder = published(server.url), tmp_path / "new" / "folder"
    assert file.fetch(folder) == folder / "data.bin" == file.fetch(folder) == file.find(folder)
    assert (folder / "data.bin").read_bytes() == CONTENT
    assert names(folder) == ["data.bin"]
    assert server.asked == [None]


@pytest.mark.parametrize("have", [1, 500_000, len(CONTENT) - 1])
@pytest.mark.parametrize("length", [True, False], ids=["announced", "of unknown length"])
def test_a_stopped_download_goes_on(server, tmp_path, have, length):
    server.length = length
    (tmp_path / "data.bin.part").write_bytes(CONTENT[:have])
    published(server.url).fetch(tmp_path)
    assert (tmp_path / "data.bin").read_bytes() == CONTENT
    assert server.asked == [f"bytes={have}-"]
    assert names(tmp_path) == ["data.bin"]


def test_a_complete_part_needs_no_network(server, tmp_path):
    (tmp_path / "data.bin.part").write_bytes(CONTENT)
    published(server.url).fetch(tmp_path)
    assert server.asked == [] and names(tmp_path) == ["data.bin"]


def test_a_server_without_range_sends_it_all_again(server, tmp_path):
    server.ranges = False
    (tmp_path / "data.bin.part").write_bytes(CONTENT[:1000])
    published(server.url).fetch(tmp_path)
    assert (tmp_path / "data.bin").read_bytes() == CONTENT


def test_a_connection_that_ends_early_keeps_what_came(server, tmp_path):
    server.stops_after = 600_000
    with pytest.raises(ConnectionError, match=r"no download from http.*Try again") as caught:
        published(server.url).fetch(tmp_path)
    assert str(tmp_path / "data.bin") in str(caught.value)
    assert names(tmp_path) == ["data.bin.part"]
    kept = (tmp_path / "data.bin.part").read_bytes()
    assert 0 < len(kept) <= 600_000 and CONTENT.startswith(kept)
    server.stops_after = None
    published(server.url).fetch(tmp_path)
    assert (tmp_path / "data.bin").read_bytes() == CONTENT
    assert server.asked == [None, f"bytes={len(kept)}-"]


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        (CONTENT[::-1], "another file"),
        (CONTENT + b"more", "another file"),
        (b"<html>Please log in</html>", "has 26 of 1,048,576 bytes"),
    ],
    ids=["other bytes", "too many", "a login page"],
)
def test_a_wrong_file_is_refused_and_deleted(server, tmp_path, sent, said):
    server.files["/data.bin"] = sent
    with pytest.raises(ValueError, match="It is deleted") as caught:
        published(server.url).fetch(tmp_path)
    assert said in str(caught.value)
    assert names(tmp_path) == []


def test_a_wrong_beginning_is_deleted_so_that_the_next_try_is_fresh(server, tmp_path):
    (tmp_path / "data.bin.part").write_bytes(b"x" * 1000)
    with pytest.raises(ValueError, match="another file"):
        published(server.url).fetch(tmp_path)
    assert published(server.url).fetch(tmp_path).read_bytes() == CONTENT


def test_a_beginning_longer_than_the_servers_file_is_given_up(server, tmp_path):
    server.files["/data.bin"] = CONTENT[:10]
    (tmp_path / "data.bin.part").write_bytes(CONTENT[:1000])
    with pytest.raises(ValueError, match="has 10 of"):
        published(server.url).fetch(tmp_path)
    assert server.asked == ["bytes=1000-", None] and names(tmp_path) == []


def test_a_users_own_file_of_that_name_is_put_aside(server, tmp_path):
    (tmp_path / "data.bin").write_bytes(b"mine")
    published(server.url).fetch(tmp_path)
    assert (tmp_path / "data.bin").read_bytes() == CONTENT
    assert (tmp_path / "data.bin.other").read_bytes() == b"mine"


def test_no_network_says_what_to_do(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: nobody answers
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/data.bin"
        with pytest.raises(ConnectionError) as caught:
            published(url).fetch(tmp_path)
    said = str(caught.value)
    assert url in said and "refused" in said and f"put it at {tmp_path / 'data.bin'}" in said


def test_a_missing_page_says_so(server, tmp_path):
    with pytest.raises(ConnectionError, match="Not Found"):
        published(server.url + ".gz").fetch(tmp_path)


def test_the_bar_counts_bytes_and_can_be_turned_off(server, tmp_path, capfd):
    (tmp_path / "data.bin.part").write_bytes(CONTENT[: len(CONTENT) // 2])
    published(server.url).fetch(tmp_path)
    shown = capfd.readouterr().err
    assert "data.bin" in shown and "50%" in shown and "1.05M/1.05M" in shown
    published(server.url).fetch(tmp_path / "again", progress=False)
    assert capfd.readouterr() == ("", "")


def test_find_never_downloads(server, tmp_path):
    with pytest.raises(FileNotFoundError, match="download=True fetches it") as caught:
        published(server.url).find(tmp_path)
    assert server.url in str(caught.value)
    (tmp_path / "data.bin").write_bytes(CONTENT[:-1])
    with pytest.raises(ValueError, match=r"has 1,048,575 of 1,048,576 bytes: it is truncated"):
        published(server.url).find(tmp_path)
    (tmp_path / "data.bin").write_bytes(CONTENT[::-1])
    with pytest.raises(ValueError, match="another file"):
        published(server.url).find(tmp_path)
    assert server.asked == []


def idx(array):
    """An IDX file of unsigned bytes: type 8, the rank, the sizes from the high byte on."""
    head = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">i4").tobytes()
    return gzip.compress(head + array.tobytes())


def tar(members):
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, content in members.items():
            entry = tarfile.TarInfo(f"cifar-10-batches-bin/{name}.bin")
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return packed.getvalue()


@contextmanager
def served(server, monkeypatch, name, contents):
    """``data``'s published files, replaced by these small ones on the local server."""
    base = server.url.removesuffix("data.bin")
    server.files = {f"/{each}": content for each, content in contents.items()}
    files = tuple(published(base + each, content) for each, content in contents.items())
    with monkeypatch.context() as patch:
        patch.setattr(data, name, files if len(files) > 1 else files[0])
        yield


def random_bytes(*shape, below=256):
    return np.random.default_rng(0).integers(0, below, shape, dtype=np.uint8)


def test_mnist_is_read_as_its_files_say(server, tmp_path, monkeypatch):
    train, test = random_bytes(7, 28, 28), random_bytes(3, 28, 28)
    train_labels, test_labels = random_bytes(7, below=10), random_bytes(3, below=10)
    arrays = dict(
        zip(
            [file.name for file in data.MNIST],
            [train, train_labels, test, test_labels],
            strict=True,
        )
    )
    contents = {name: idx(array) for name, array in arrays.items()}
    with served(server, monkeypatch, "MNIST", contents):
        with pytest.raises(FileNotFoundError):
            data.mnist(tmp_path)
        assert server.asked == []
        split = data.mnist(tmp_path, download=True)
        again = data.mnist(str(tmp_path))
    assert len(server.asked) == 4
    assert split.train_images.shape == (7, 1, 28, 28)
    assert torch.equal(split.train_images, torch.from_numpy(train[:, None]) / 255)
    assert torch.equal(split.test_images, torch.from_numpy(test[:, None]) / 255)
    assert split.train_labels.tolist() == train_labels.tolist()
    assert split.test_labels.tolist() == test_labels.tolist()
    assert split.train_images.dtype == torch.float32 and split.test_labels.dtype == torch.int64
    assert torch.equal(again.train_images, split.train_images)


def test_cifar10_is_read_as_its_records_say(server, tmp_path, monkeypatch):
    names = [f"data_batch_{number}" for number in range(1, 6)] + ["test_batch"]
    records = {name: random_bytes(2, 3073) for name in names}
    for number, part in enumerate(records.values()):
        part[:, 0] = [number, 9 - number]
        part[:, 1:1025], part[:, 1025:2049] = 255, 51  # red full, green a fifth
    contents = {"cifar-10-binary.tar.gz": tar({n: r.tobytes() for n, r in records.items()})}
    with served(server, monkeypatch, "CIFAR10", contents):
        split = data.cifar10(tmp_path, download=True)
    assert split.train_images.shape == (10, 3, 32, 32)
    assert split.test_images.shape == (2, 3, 32, 32)
    assert split.train_labels.tolist() == [0, 9, 1, 8, 2, 7, 3, 6, 4, 5]
    assert split.test_labels.tolist() == [5, 4]
    assert (split.train_images[:, 0] == 1).all()
    assert (split.train_images[:, 1] == torch.tensor(0.2)).all()
    blue = records["data_batch_3"][1, 2049:].reshape(32, 32)
    assert torch.equal(split.train_images[5, 2], torch.from_numpy(blue) / 255)
    assert split.train_images.dtype == torch.float32 and split.train_labels.dtype == torch.int64


def test_the_published_files_are_the_known_ones():
    sizes = {file.name: file.size for file in (*data.MNIST, data.CIFAR10)}
    assert sizes == {
        "train-images-idx3-ubyte.gz": 9912422,
        "train-labels-idx1-ubyte.gz": 28881,
        "t10k-images-idx3-ubyte.gz": 1648877,
        "t10k-labels-idx1-ubyte.gz": 4542,
        "cifar-10-binary.tar.gz": 170052171,
    }
    for file in (*data.MNIST, data.CIFAR10):
        assert re.fullmatch("[0-9a-f]{64}", file.sha256) and file.url.startswith("https://")
