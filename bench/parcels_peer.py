"""A load program in the study's manner: Python threads, a driver from PyPI, and nothing that looks at the answers.

parcels_peer.py postgres|mariadb|redis ADDRESS insert|hash|id THREADS SECONDS PARCELS prints operations a second.
"""

import random, string, sys, threading, time
from urllib.parse import urlsplit

STORE, ADDRESS, WHAT, THREADS, SECONDS, PARCELS = *sys.argv[1:4], *map(int, sys.argv[4:])
AT, LETTERS = urlsplit(ADDRESS), string.ascii_uppercase + string.digits
KIND, TEXT = ("bigserial", 'COLLATE "C"') if STORE == "postgres" else ("BIGINT AUTO_INCREMENT", "CHARACTER SET ascii COLLATE ascii_bin")
TABLE = f"""CREATE TABLE scans_peer (scan_id {KIND} PRIMARY KEY, scan_hash VARCHAR(11) {TEXT} NOT NULL,
    scan_type VARCHAR(3) {TEXT} NOT NULL, scan_count INT NOT NULL, machine_type VARCHAR(10) {TEXT} NOT NULL,
    sequence_code VARCHAR(5) {TEXT} NOT NULL, load_date TIMESTAMP DEFAULT CURRENT_TIMESTAMP)"""
LOAD = "INSERT INTO scans_peer (scan_hash, scan_type, scan_count, machine_type, sequence_code) VALUES "


def word(letters):
    return "".join(random.choices(LETTERS, k=letters))


class Sql:
    def __init__(self):
        login = dict(host=AT.hostname, port=AT.port, user=AT.username, password=AT.password or "")
        if STORE == "postgres":
            import psycopg2
            connection = psycopg2.connect(dbname="postgres", **login)
            connection.autocommit = True
        else:
            import pymysql
            connection = pymysql.connect(database="test_peer", autocommit=True, **login)
        self.cursor = connection.cursor()

    def insert(self, of):
        self.cursor.execute("SELECT count(*) FROM scans_peer WHERE scan_hash = %s", (of,))
        count = self.cursor.fetchone()[0] + 1
        self.cursor.execute(LOAD + "(%s, %s, %s, %s, %s)", (of, word(3), count, word(10), word(5)))

    def read(self, by, key):
        self.cursor.execute(f"SELECT * FROM scans_peer WHERE {by} = %s", (key,))
        return self.cursor.fetchall()

    def make(self):
        self.cursor.execute("DROP TABLE IF EXISTS scans_peer")
        self.cursor.execute(TABLE)
        self.cursor.execute("CREATE INDEX scans_peer_hash ON scans_peer (scan_hash)")

    def load(self, parcels):
        rows = [(of, word(3), count, word(10), word(5)) for of in parcels for count in range(1, 8)]
        self.cursor.execute(LOAD + ", ".join(["(%s, %s, %s, %s, %s)"] * len(rows)), [v for row in rows for v in row])


class Redis:
    def __init__(self):
        import redis
        self.redis = redis.Redis(AT.hostname, AT.port)

    def insert(self, of):
        count, scan = self.redis.llen(f"peer:{of}") + 1, self.redis.incr("peer:id")
        with self.redis.pipeline() as both:
            both.hset(f"peer:scan:{scan}", mapping=dict(hash=of, type=word(3), count=count, machine=word(10), code=word(5)))
            both.rpush(f"peer:{of}", scan).execute()

    def read(self, by, key):
        if by == "scan_id":
            return self.redis.hgetall(f"peer:scan:{key}")
        with self.redis.pipeline(transaction=False) as each:
            for scan in self.redis.lrange(f"peer:{key}", 0, -1):
                each.hgetall(f"peer:scan:{scan.decode()}")
            return each.execute()

    def make(self):
        self.redis.flushall()

    def load(self, parcels):
        for of in parcels:
            for _ in range(7):
                self.insert(of)


def client(hashes, done, start):
    store, count = (Redis if STORE == "redis" else Sql)(), 0
    start.wait()
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        # each parcel has seven scans
        of = word(11) if WHAT == "insert" and count % 7 == 0 else (of if WHAT == "insert" else random.choice(hashes))
        if WHAT == "insert":
            store.insert(of)
        elif WHAT == "hash":
            store.read("scan_hash", of)
        else:
            store.read("scan_id", random.randint(1, len(hashes) * 7))
        count += 1
    done.append(count)


hashes, done, store = [word(11) for _ in range(PARCELS)], [], (Redis if STORE == "redis" else Sql)()
store.make()
for first in range(0, len(hashes), 100) if WHAT != "insert" else ():
    store.load(hashes[first:first + 100])
start = threading.Barrier(THREADS)
threads = [threading.Thread(target=client, args=(hashes, done, start)) for _ in range(THREADS)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
store.make()
if len(done) < THREADS:
    sys.exit(f"{THREADS - len(done)} of {THREADS} threads have failed")
print(sum(done) / SECONDS)
