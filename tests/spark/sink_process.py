"""A batch write as a process of its own, to be killed: python sink_process.py SETTINGS.

SETTINGS is JSON: "namesrv", "options" of the write, "topic", "count" of rows, "tasks". Its driver is the one
of `sink_world`, without Spark, so that it starts quickly.
"""

import json
import sys

from spark.sink_world import Write, rows


def main(text: str) -> None:
    settings = json.loads(text)
    write = Write(settings["namesrv"], **settings["options"])
    write.tasks(rows(settings["count"], settings["topic"]), settings["tasks"]).commit()


if __name__ == "__main__":
    main(sys.argv[1])
