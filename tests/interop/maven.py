"""Java programs for interop tests, from Maven Central, in the user's Maven repository."""

import os
import tarfile
from pathlib import Path
from typing import Any

from tests.interop.environments import FOLDER

REGISTRY = ("io.apicurio:apicurio-registry-app:3.3.3", "all", "tar.gz")
# Kafka's console consumer, with Apicurio's Java deserializer.
CONSUMER = (
    "org.apache.kafka:kafka-tools:4.3.1",
    "io.apicurio:apicurio-registry-avro-serde-kafka:3.1.7",
)
# Writes Strimzi's definitions from the classes of its API.
STRIMZI = ("io.strimzi:crd-generator:1.2.0", "io.strimzi:api:1.2.0")


def registry_app() -> Path:
    """Return the runnable jar of Apicurio Registry; the first call downloads 159 MB."""
    folder = FOLDER / "apicurio"
    jar = folder / "quarkus-run.jar"
    if not jar.is_file():
        coordinate, classifier, packaging = REGISTRY
        with tarfile.open(_component(coordinate).artifact(classifier, packaging).resolve()) as tar:
            tar.extractall(folder, filter="data")
    return jar


def classpath(coordinates: tuple[str, ...]) -> str:
    """Return the class path of components and all that they need at run time.

    The first call downloads it: 67 MB for the console consumer, 20 MB for Strimzi's generator.
    """
    kept = FOLDER / f"{coordinates[0].partition(':')[0]}-classpath"
    wanted = " ".join(coordinates)
    if kept.is_file():
        made_of, _, found = kept.read_text().partition("\n")
        if made_of == wanted and all(map(os.path.exists, found.split(os.pathsep))):
            return found
    jars: dict[tuple[str, str], Path] = {}
    for coordinate in coordinates:  # the first one's versions of shared jars win
        jars = {**_closure(coordinate), **jars}
    found = os.pathsep.join(map(str, jars.values()))
    FOLDER.mkdir(parents=True, exist_ok=True)
    kept.write_text(f"{wanted}\n{found}")
    return found


def _closure(coordinate: str) -> dict[tuple[str, str], Path]:
    """Return the jars of a component and all that it needs at run time."""
    from jgo.maven import Dependency

    component = _component(coordinate)
    _, nodes = component.context.resolver.get_dependency_list([Dependency(component.artifact())])
    needed = [node.dep for node in nodes if node.dep.scope in ("compile", "runtime")]
    found = {(each.groupId, each.artifactId): each.artifact.resolve() for each in needed}
    group, artifact, _ = coordinate.split(":")
    return {(group, artifact): component.artifact().resolve(), **found}


def _component(coordinate: str) -> Any:
    from jgo.config import GlobalSettings
    from jgo.maven import MavenContext, PythonResolver

    cache = GlobalSettings.load().repo_cache
    context = MavenContext(resolver=PythonResolver(), repo_cache=cache, timeout=60)
    group, artifact, version = coordinate.split(":")
    return context.project(group, artifact).at_version(version)
