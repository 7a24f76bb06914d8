"""When a dependency counts as changed: by its content, in a dry run also by what would be made."""

import SCons.Node
from environment import Node
from SCons.Script import GetOption


def changed(
    dependency: Node, target: Node, previous: object, repository_node: Node | None = None
) -> bool:
    """Whether `dependency` asks for `target` to be built again.

    A dry run makes nothing, so the content of what it would have made is not known: it counts as
    changed, and `scons -n` names everything that a change may reach.
    """
    if GetOption("no_exec") and dependency.get_state() == SCons.Node.executed:
        return True
    return dependency.changed_content(target, previous, repository_node)
