"""Which files of the mathematics the program is made of, by Futhark's own account."""

import re
import subprocess

from tests import groups
from tests.build.checkouts import source_files


@groups.needs("futhark")
def test_every_file_of_the_mathematics_is_imported(built_copy):
    command = ["futhark", "imports", "futhark/entries.fut"]
    done = subprocess.run(command, cwd=built_copy.path, capture_output=True, text=True, check=True)
    present = {
        name for name in source_files() if name.startswith("futhark/") and name.endswith(".fut")
    }
    assert set(re.findall(r"\S+\.fut", done.stdout)) == present
