"""A program that answers each connection with what it says, on the device end of a lab. Its first line is its port.
It answers "later" 0.3 s later."""

ECHO = """
import asyncio

async def echo(reader, writer):
    while data := await reader.read(65536):
        if data == b"later":
            await asyncio.sleep(0.3)
        writer.write(data)
    writer.close()

async def main():
    server = await asyncio.start_server(echo, "198.18.0.2", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()

asyncio.run(main())
"""
