"""Adds one to a counter in MySQL or MariaDB, under a lock and behind its fence.

    tollgate sql-schema mysql://127.0.0.1/shop      # prints the procedures to install
    tollgate run --url mysql://app@127.0.0.1/shop total -- python3 mysql_counter.py 127.0.0.1 3306 shop

Needs PyMySQL, and a table: create table total (n int not null). `tollgate run` passes the fencing token in
TOLLGATE_TOKEN.
"""

import os
import sys
from contextlib import contextmanager

import pymysql

SIGNAL = 1644  # an error that a procedure raised


class Stale(Exception):
    """A holder with a larger token was here already: this process has lost its lock."""


@contextmanager
def fenced(connection, resource, token):
    """A transaction in which `token` is admitted: commits at its end, and rolls back after any error.

    An error does not end a transaction in MySQL, so what follows a refusal would be committed without the rollback.
    """
    connection.begin()
    try:
        with connection.cursor() as cursor:
            cursor.execute("call tollgate_admit(%s, %s)", (resource, token))
            yield cursor
        connection.commit()
    except pymysql.MySQLError as error:
        connection.rollback()
        if error.args[0] == SIGNAL and "stale" in error.args[1]:
            raise Stale(error.args[1]) from error
        raise
    except BaseException:
        connection.rollback()
        raise


def main():
    host, port, database = sys.argv[1:]
    connection = pymysql.connect(
        host=host,
        port=int(port),
        database=database,
        user=os.environ.get("MYSQL_USER", "root"),
        password=os.environ.get("MYSQL_PWD", ""),
    )
    token = int(os.environ["TOLLGATE_TOKEN"])
    with connection, fenced(connection, "total", token) as cursor:
        cursor.execute("select n from total")
        (count,) = cursor.fetchone()
        cursor.execute("update total set n = %s", (count + 1,))
        print(count + 1)


if __name__ == "__main__":
    try:
        main()
    except Stale as stale:
        sys.exit(f"refused: {stale}")
