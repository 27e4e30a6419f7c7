"""How colcon installs the package."""

from glob import glob

from setuptools import setup

NAME = "limber_ros2"

setup(
    name=NAME,
    version="0.1.0",
    packages=[NAME],
    data_files=[
        ("share/ament_index/resource_index/packages", [f"resource/{NAME}"]),
        (f"share/{NAME}", ["package.xml"]),
        (f"share/{NAME}/config", glob("config/*.yaml")),
        (f"share/{NAME}/launch", glob("launch/*.py")),
    ],
    # limber itself comes by pip: rosdep has no name for it.
    install_requires=["setuptools"],
    zip_safe=True,
    maintainer="The Limber project",
    maintainer_email="maintainers@limber.invalid",
    description="A robot's topics and a Limber gateway: action chunks by a service, control loops by an action.",
    license="Apache-2.0",
    entry_points={"console_scripts": [f"node = {NAME}.node:main"]},
)
