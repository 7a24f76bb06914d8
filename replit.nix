{ pkgs }:
{
  deps = [
    pkgs.gcc
    pkgs.git
    pkgs.python311
    pkgs.util-linux
  ];
}
